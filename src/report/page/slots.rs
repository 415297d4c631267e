//! Describes the slots of a search for the page: their hardware, their trials and their speed.

use serde::Serialize;

use crate::model::{
    Slot,
    quantity::{show_bytes, show_duration},
};
use crate::search::Study;

/// A slot.
#[derive(Debug, Serialize)]
pub(super) struct Place {
    number: u32,
    has: String,
    trials: String,
    busy: String,
    /// The speed relative to the first slot.
    level: String,
}

pub(super) fn places(study: &Study) -> Vec<Place> {
    let place = |seen: crate::search::SlotSeen| Place {
        number: seen.slot.number,
        has: described(&seen.slot),
        trials: match seen.failed {
            0 => seen.trials.to_string(),
            failed => format!("{}, {failed} failed", seen.trials),
        },
        busy: show_duration(seen.busy),
        level: seen.level.map_or_else(|| "not compared".to_owned(), shown),
    };
    study.slots().into_iter().map(place).collect()
}

fn shown(level: f64) -> String {
    format!("{level:.2}x")
}

/// Describes the hardware of a slot in one line.
pub(super) fn described(slot: &Slot) -> String {
    let host = (!slot.host.is_empty()).then(|| slot.host.clone());
    let processors = (!slot.cores.is_empty()).then(|| format!("processors {}", slot.processors()));
    let memory = slot.memory_bytes.map(|bytes| format!("{} of memory", show_bytes(bytes)));
    let parts: Vec<String> =
        host.into_iter().chain(slot.gpus.iter().cloned()).chain(processors).chain(memory).collect();
    if parts.is_empty() { format!("slot {}", slot.number) } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_slot_has_is_one_line() {
        let gpus = vec!["GPU-1".to_owned(), "GPU-2".to_owned()];
        let slot = Slot { host: "node7".to_owned(), gpus, cores: vec![8, 9, 11], ..Slot::numbered(2) };
        assert_eq!(described(&slot), "node7, GPU-1, GPU-2, processors 8-9,11");
        assert_eq!(described(&Slot::numbered(3)), "slot 3");
        assert_eq!(shown(0.981), "0.98x");
    }
}
