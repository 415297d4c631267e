//! What each slot has measured, and how fast it is.

use std::time::Duration;

use super::Study;
use crate::model::{Estimate, Slot};
use crate::search::drift::SlotLevels;

/// A slot of a search, as its trials show it.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotSeen {
    /// The slot.
    pub slot: Slot,
    /// The trials that it has measured, and of them those that failed.
    pub trials: usize,
    /// See `trials`.
    pub failed: usize,
    /// How long it was in use.
    pub busy: Duration,
    /// How fast the same config is there, against the slot that measured it first; for that one exactly 1. `None` where too little was
    /// measured there. What is known is drawn towards 1 by as much as it is uncertain, as it is taken out of the slot's results.
    pub level: Option<Estimate>,
}

impl Study {
    /// The slots that measured anything, by their numbers; none where one probe ran at a time on the whole machine.
    pub fn slots(&self) -> Vec<SlotSeen> {
        let levels = SlotLevels::of(&self.history, self.baseline.as_ref(), self.noise_prior);
        let mut seen: Vec<SlotSeen> = Vec::new();
        for trial in self.history.trials() {
            let Some(slot) = &trial.slot else { continue };
            let at = seen.iter().position(|seen| seen.slot == *slot).unwrap_or_else(|| {
                let (slot, level) = (slot.clone(), levels.shown(slot));
                seen.push(SlotSeen { slot, trials: 0, failed: 0, busy: Duration::ZERO, level });
                seen.len() - 1
            });
            seen[at].trials += 1;
            seen[at].failed += usize::from(trial.outcome.failure().is_some());
            seen[at].busy += trial.elapsed;
        }
        seen.sort_by_key(|seen| seen.slot.number);
        seen
    }
}
