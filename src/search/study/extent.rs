//! Counts what a search has tried: configs, rounds, and the trials of each slot.

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Study;
use crate::model::{Config, Count, Purpose, Slot};
use crate::probe::stats;
use crate::search::budget::StopReason;

/// The number of configs tried besides the baseline, and the number of configs in the space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternatives {
    /// The configs that were probed, whatever the outcome.
    pub tried: usize,
    /// The number of configs in the space: `363` or `1.20e9`; `unknown` if counting them would take too long.
    pub of: String,
}

impl Alternatives {
    /// Returns both numbers as a string: `12 of 363 alternatives tried`.
    pub fn in_words(&self) -> String {
        let Self { tried, of } = self;
        if *of == Count::Unknown.to_string() {
            return format!("{tried} alternatives tried, {}", Count::Unknown.in_words());
        }
        format!("{tried} of {of} alternatives tried")
    }
}

/// A slot of a search with the totals of its trials.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotSeen {
    /// The slot.
    pub slot: Slot,
    /// The number of trials that ran in it.
    pub trials: usize,
    /// The number of these trials that failed.
    pub failed: usize,
    /// How long it was in use.
    pub busy: Duration,
    /// The baseline's speed in this slot, divided by its speed in the slot of the first trial. `None` if the baseline
    /// was not measured in both slots.
    pub level: Option<f64>,
}

impl Study {
    /// Counts the configs that were tried besides the baseline.
    pub fn alternatives(&self) -> Alternatives {
        let is_baseline = |config: &Config| self.baseline.as_ref() == Some(config);
        let tried: HashSet<&Config> = self.history.searched().map(|trial| &trial.config).collect();
        let tried = tried.into_iter().filter(|config| !is_baseline(config)).count();
        // The unmodified job is not a config of the space.
        let has_baseline = self.baseline.as_ref().is_some_and(|baseline| self.space.allows(baseline));
        Alternatives { tried, of: self.space.count().less(u128::from(has_baseline)).to_string() }
    }

    /// Returns true if the search cannot tell which config is best: no probe ended, disturbances left the baseline without a
    /// result, or a limit of time came before a second config.
    pub fn cannot_tell(&self) -> bool {
        let is_limit =
            matches!(self.stopped, StopReason::TimeSpent | StopReason::GpuTimeSpent | StopReason::AllocationEnds);
        let is_empty = self.history.trials().is_empty();
        is_empty || self.is_baseline_missing() || is_limit && self.alternatives().tried == 0
    }

    /// Returns true if there is a baseline, and none of its probes has a result.
    pub fn is_baseline_missing(&self) -> bool {
        self.baseline.as_ref().is_some_and(|baseline| self.history.of(baseline).next().is_none())
    }

    /// Counts the rounds.
    pub fn rounds(&self) -> usize {
        let rounds = self.history.trials().iter().filter_map(|trial| trial.outcome.measurement()?.round.as_ref());
        rounds.map(|round| round.number).collect::<HashSet<u32>>().len()
    }

    /// Returns true if other programs kept the machine busy in most of the probes.
    pub fn is_machine_busy(&self) -> bool {
        self.history.is_beside_others()
    }

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

    /// Returns the mean rate of the baseline over its rounds in a slot. Without rounds, over its probes there.
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
