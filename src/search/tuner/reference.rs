//! Decides when the baseline is measured again, to see whether the machine is as fast as before.

use std::num::NonZeroU32;

use super::search::Search;
use crate::model::{Config, Outcome};

/// The part of the usual time that a reference measures: a third.
pub(super) const PART: NonZeroU32 = NonZeroU32::new(3).expect("three is not zero");

/// The probes in each slot between two runs of the baseline: a round number. A drift of 1 % a minute is then seen before it is as large as
/// runs differ anyway, for a fifth of a third of the measuring.
const EVERY: usize = 5;

impl Search<'_, '_> {
    /// Whether it is time for the baseline: some probes since its last run, and starting it costs no more than measuring it.
    /// A function of the history, as all that a search does.
    pub(super) fn is_reference_due(&self, baseline: &Config) -> bool {
        if !self.objective.is_largest_throughput() {
            return false;
        }
        let trials = self.history.trials();
        let is_measured = |trial: &crate::model::Trial| matches!(trial.outcome, Outcome::Measured(_));
        let Some(last) = trials.iter().rposition(|trial| trial.config == *baseline) else { return false };
        let since = trials[last..].iter().skip(1).filter(|trial| trial.outcome.partial_measurement().is_some()).count();
        let spent = trials.last().and_then(|trial| trial.outcome.partial_measurement()?.spent);
        let part = self.limits.measure_time.as_secs_f64() / f64::from(PART.get());
        let starts_quickly = spent.is_some_and(|spent| spent.importing_s + spent.starting_s <= part);
        // A baseline that cannot follow the last config in its process ends a process in which others could be measured.
        let ended = trials.last().filter(|trial| trial.outcome.partial_measurement().is_some_and(|run| run.is_live));
        let is_dear = ended.is_some_and(|trial| !self.space.may_follow(baseline, &trial.config));
        let every = self.slots.open().max(1) * if is_dear { 2 * EVERY } else { EVERY };
        is_measured(&trials[last]) && since >= every && starts_quickly
    }
}
