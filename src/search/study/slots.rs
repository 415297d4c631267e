//! The trials and the speed of each slot.

use std::time::Duration;

use super::Study;
use crate::model::{Purpose, Slot};
use crate::probe::stats;

/// A slot of a search with the totals of its trials.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotSeen {
    /// The slot.
    pub slot: Slot,
    /// The number of trials that it has measured.
    pub trials: usize,
    /// The number of these trials that failed.
    pub failed: usize,
    /// How long it was in use.
    pub busy: Duration,
    /// The baseline's speed in this slot, divided by its speed in the slot that measured it first. `None` if the baseline was not
    /// measured here.
    pub level: Option<f64>,
}

impl Study {
    /// Returns the slots that measured a trial, by their numbers; empty if one probe ran at a time on the whole machine.
    pub fn slots(&self) -> Vec<SlotSeen> {
        let first = self.history.trials().iter().find_map(|trial| trial.slot.as_ref());
        let of_first = first.and_then(|slot| self.baseline_in(slot));
        let mut seen: Vec<SlotSeen> = Vec::new();
        for trial in self.history.trials() {
            let Some(slot) = &trial.slot else { continue };
            let at = seen.iter().position(|seen| seen.slot == *slot).unwrap_or_else(|| {
                let level = self.baseline_in(slot).zip(of_first).map(|(rate, first)| rate / first);
                let slot = slot.clone();
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

    /// Returns the mean rate of the baseline in the rounds of a slot, or else of its own probe there.
    fn baseline_in(&self, slot: &Slot) -> Option<f64> {
        let rates = |is_round: bool| {
            let there = self.history.of(self.baseline.as_ref()?).filter(|trial| trial.slot.as_ref() == Some(slot));
            let counted = there.filter(|trial| (trial.purpose == Purpose::Round) == is_round);
            let rates = counted.filter_map(|trial| Some(trial.outcome.measurement()?.throughput?.value));
            stats::mean(&rates.collect::<Vec<f64>>())
        };
        rates(true).or_else(|| rates(false))
    }
}
