//! The trials of a search: in the history, in the journal, and as events.

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Config, History, Objective, Settings, Space, Trial, front};
use crate::search::journal::Journal;

/// The trials of a search.
pub(super) struct Trials {
    pub(super) history: History,
    pub(super) journal: Option<Journal>,
    /// The number of the first trial of this run of the search.
    pub(super) first_number: u32,
    /// The number of the last trial in the journal, earlier eras included.
    pub(super) last_number: u32,
    leader: Leader,
}

impl Trials {
    pub(super) fn new(history: History, journal: Option<Journal>, last_number: u32) -> Self {
        let first_number = history.highest_number().max(last_number) + 1;
        Self { history, journal, first_number, last_number, leader: Leader::default() }
    }

    /// Returns the settings that a probe of a config applies.
    pub(super) fn set_by(&self, config: &Config, space: &Space) -> Settings {
        self.history.set(space, &space.settings(config))
    }

    /// Returns the number of the last round in the history.
    pub(super) fn last_round(&self) -> u32 {
        let rounds = self.history.trials().iter().rev();
        rounds.filter_map(|trial| Some(trial.outcome.measurement()?.round.as_ref()?.number)).next().unwrap_or(0)
    }

    /// Returns a config's rate over whole epochs, as a share of its rate between their ends. Slices leave out the ends of epochs.
    pub(super) fn epoch_factor_of(&self, config: &Config) -> Option<f64> {
        let probes = self.history.of(config).filter_map(|trial| trial.outcome.measurement());
        probes.filter(|probe| probe.round.is_none()).filter_map(|probe| probe.timing.epoch_factor).last()
    }

    /// Returns the time that a process takes from its start to its first step: the longest of the last processes. The first process of
    /// all may also compile Python modules.
    pub(super) fn time_to_start(&self) -> Duration {
        const LAST: usize = 3;
        let start_of = |trial: &Arc<Trial>| {
            let run = trial.outcome.measurement().filter(|run| !run.is_live && run.round.is_none())?;
            run.spent.map(|spent| spent.importing_s + spent.starting_s)
        };
        let seconds = self.history.trials().iter().rev().filter_map(start_of).take(LAST).fold(0.0, f64::max);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns the best feasible trial with its score, the first among equals.
    pub(super) fn best(&mut self, objective: &Objective) -> Option<(&Trial, f64)> {
        self.leader.of(objective, &self.history)
    }

    /// Returns true if a trial is better than all before. For a front: if no trial before is as good in every metric.
    pub(super) fn is_best(&mut self, trial: &Trial, objective: &Objective) -> bool {
        let Some(scores) = objective.scores_of(&trial.outcome) else { return false };
        if objective.is_pareto() {
            let mut known = self.history.searched().filter_map(|trial| objective.scores_of(&trial.outcome));
            return !known.any(|other| other == scores || front::dominates(&other, &scores));
        }
        let best = self.best(objective).map(|(_, top)| top);
        objective.score_of(&trial.outcome).is_some_and(|score| best.is_none_or(|top| score > top))
    }
}

/// The best trial so far, found without asking all trials again after each probe.
#[derive(Debug, Default)]
struct Leader {
    /// Identifies the history that was seen.
    of: Arc<()>,
    seen: usize,
    /// Its place in the history, and its score.
    best: Option<(usize, f64)>,
}

impl Leader {
    /// Returns the best feasible trial, the first among equals.
    fn of<'h>(&mut self, objective: &Objective, history: &'h History) -> Option<(&'h Trial, f64)> {
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
            history.push(Trial::new(number, purpose, space.config(u128::from(number)).unwrap(), outcome));
            let of_all = strategy::best(&objective, &history).map(|(trial, score)| (trial.number, score));
            let kept = leader.of(&objective, &history).map(|(trial, score)| (trial.number, score));
            assert_eq!(kept, of_all, "after {number}");
        }
    }
}
