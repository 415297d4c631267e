//! The best trial so far, found without asking all trials again after each probe.

use std::sync::Arc;

use crate::model::{History, Objective, Trial};

/// Keeps the best of the trials that were seen.
#[derive(Debug, Default)]
pub(super) struct Leader {
    /// Identifies the history that was seen.
    of: Arc<()>,
    seen: usize,
    /// Its place in the history, and its score.
    best: Option<(usize, f64)>,
}

impl Leader {
    /// Returns the best feasible trial, the first among equals.
    pub(super) fn of<'h>(&mut self, objective: &Objective, history: &'h History) -> Option<(&'h Trial, f64)> {
        if !Arc::ptr_eq(&self.of, history.identity()) {
            *self = Self { of: Arc::clone(history.identity()), ..Self::default() };
        }
        let trials = history.trials();
        for (place, trial) in trials.iter().enumerate().skip(self.seen) {
            if let Some(score) = objective.score_of(&trial.outcome).filter(|_| !trial.purpose.is_repeated())
                && self.best.is_none_or(|(_, top)| score > top)
            {
                self.best = Some((place, score));
            }
        }
        self.seen = trials.len();
        self.best.and_then(|(place, score)| Some((trials.get(place)?.as_ref(), score)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Estimate, Failure, Measurement, Outcome, Parameter, Purpose, Space};
    use crate::search::strategy;

    #[test]
    fn it_is_the_same_as_that_of_all_trials_after_each() {
        let space = Space::new([Parameter::range("x", 0, 99, 1)]).unwrap();
        let (mut history, mut leader, objective) = (History::default(), Leader::default(), Objective::default());
        use Purpose::{Baseline, Round, Search};
        let purposes = [Baseline, Search, Search, Round, Search, Search, Search, Search, Round];
        for (number, &purpose) in (1_u32..).zip(purposes.iter().cycle()).take(40) {
            // Some trials fail, some are equal, and some of the best are repetitions.
            let rate = f64::from(number * 7 % 11);
            let measured = Measurement { throughput: Some(Estimate::point(rate)), ..Measurement::default() };
            let outcome =
                if number % 6 == 0 { Outcome::Crashed(Failure::new("no")) } else { Outcome::Measured(measured) };
            history.push(Trial {
                ended_at: None,
                slot: None,
                number,
                purpose,
                config: space.config(u128::from(number)).unwrap(),
                outcome,
                elapsed: Duration::ZERO,
            });
            let of_all = strategy::best(&objective, &history).map(|(trial, score)| (trial.number, score));
            let kept = leader.of(&objective, &history).map(|(trial, score)| (trial.number, score));
            assert_eq!(kept, of_all, "after {number}");
        }
    }
}
