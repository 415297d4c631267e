//! The part of a machine that a probe may use.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The part of a machine that a probe may use: some of its GPUs, whole cores near them, and a share of its memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// Its number among the slots of a search, counted from 1.
    pub number: u32,
    /// The machine.
    pub host: String,
    /// Its GPUs by UUID, since a GPU's number can differ between processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// The CPUs that it is bound to, by kernel number; empty if it is not bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<u32>,
    /// Its share of the host's memory in bytes; `None` if it may use all memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl Slot {
    /// Makes a slot with only a number, for steps in this process.
    pub fn numbered(number: u32) -> Self {
        Self { number, host: String::new(), gpus: Vec::new(), cores: Vec::new(), memory_bytes: None }
    }

    /// Returns the number of GPUs in a slot; `whole` if there is no slot, or it names no GPUs.
    pub fn count_gpus(slot: Option<&Self>, whole: u32) -> u32 {
        let own = slot.map(|slot| slot.gpus.len()).filter(|count| *count > 0);
        own.and_then(|count| u32::try_from(count).ok()).unwrap_or(whole)
    }

    /// Returns its CPUs in the kernel's format: `0-3,8`.
    pub fn processors(&self) -> String {
        listed(&self.cores)
    }

    /// Describes the amount of resources, which trials depend on, without naming the resources.
    pub fn shape(&self) -> String {
        let gpus = match self.gpus.len() {
            0 => String::new(),
            1 => "1 GPU, ".to_owned(),
            many => format!("{many} GPUs, "),
        };
        match self.cores.len() {
            1 => format!("{gpus}1 processor"),
            many => format!("{gpus}{many} processors"),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.number)?;
        let gpus = self.gpus.iter().map(|uuid| uuid.chars().take(12).collect::<String>());
        let cores = (!self.cores.is_empty()).then(|| format!("processors {}", self.processors()));
        let parts: Vec<String> = gpus.chain(cores).collect();
        if parts.is_empty() { Ok(()) } else { write!(f, " ({})", parts.join(", ")) }
    }
}

/// Formats numbers as the kernel lists CPUs: `0-3,8`.
fn listed(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(shown).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_it_has() {
        let uuid = "GPU-0a1b2c3d-4e5f".to_owned();
        let slot = Slot { gpus: vec![uuid], cores: vec![0, 1, 2, 8], ..Slot::numbered(2) };
        assert_eq!(slot.to_string(), "slot 2 (GPU-0a1b2c3d, processors 0-2,8)");
        assert_eq!(slot.shape(), "1 GPU, 4 processors");
        assert_eq!(Slot::numbered(1).to_string(), "slot 1");
    }
}
