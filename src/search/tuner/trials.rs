//! The trials of a search: in the history, in the journal, and the part that a strategy sees.
//!
//! A strategy knows configs of the space and nothing else. The unmodified job counts as the config with the same settings, if the
//! space has it, so that it is not probed twice. If not, the strategy does not see it, and the search starts at the nearest config.
//! A parameter that nothing in the step takes is closed: it keeps only its first setting, which is not applied.

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Config, History, Measurement, Objective, Settings, Space, Trial, arrival, front};
use crate::probe::stats;
use crate::search::journal::Journal;

pub(super) struct Trials {
    pub(super) history: History,
    pub(super) journal: Option<Journal>,
    /// The number of the first trial of this run of the search.
    pub(super) first_number: u32,
    /// The number of the last trial in the journal, earlier eras included.
    pub(super) last_number: u32,
    /// The number of trials that were judged.
    judged: usize,
    /// The index and the score of the best of them.
    best: Option<(usize, f64)>,
}

impl Trials {
    pub(super) fn new(history: History, journal: Option<Journal>, last_number: u32) -> Self {
        let first_number = history.highest_number().max(last_number) + 1;
        Self { history, journal, first_number, last_number, judged: 0, best: None }
    }

    /// Replaces the last trial with the same number.
    pub(super) fn amend(&mut self, trial: Trial) {
        self.history.amend(trial);
        (self.judged, self.best) = (0, None);
    }

    /// Returns the settings that a probe of a config applies.
    pub(super) fn set_by(&self, config: &Config, space: &Space) -> Settings {
        self.history.set(space, &space.settings(config))
    }

    pub(super) fn runs_of(&self, config: &Config) -> impl Iterator<Item = &Measurement> {
        self.history.of(config).filter_map(|trial| trial.outcome.measurement())
    }

    /// Returns the trial that measured a config: its own probe, or else its first round.
    pub(super) fn measured(&self, config: &Config) -> Option<&Trial> {
        let measured = self.history.of(config).filter(|trial| trial.outcome.measurement().is_some());
        measured.min_by_key(|trial| trial.purpose.is_repeated())
    }

    pub(super) fn last_round(&self) -> u32 {
        let rounds = self.history.trials().iter().rev();
        rounds.filter_map(|trial| Some(trial.outcome.measurement()?.round.as_ref()?.number)).next().unwrap_or(0)
    }

    /// Returns a config's rate over whole epochs, as a share of its rate between their ends. Slices leave out the ends of epochs.
    pub(super) fn epoch_factor_of(&self, config: &Config) -> Option<f64> {
        let probes = self.runs_of(config).filter(|probe| probe.round.is_none());
        probes.filter_map(|probe| probe.timing.epoch_factor).last()
    }

    /// Returns the time that a process takes from its start to its first step: the longest of the last processes. The first process
    /// of all may also compile Python modules.
    pub(super) fn time_to_start(&self) -> Duration {
        let longest = self.last_starts(|_| true).into_iter().fold(0.0, f64::max);
        Duration::try_from_secs_f64(longest).unwrap_or_default()
    }

    /// Returns the time that a process takes to start if nothing is forked: the mean of the last such processes.
    pub(super) fn time_to_start_anew(&self) -> Duration {
        let mean = stats::mean(&self.last_starts(|run| !run.is_forked)).unwrap_or_default();
        Duration::try_from_secs_f64(mean).unwrap_or_default()
    }

    fn last_starts(&self, counts: impl Fn(&Measurement) -> bool) -> Vec<f64> {
        const LAST: usize = 3;
        let start_of = |trial: &Arc<Trial>| {
            let run = trial.outcome.measurement().filter(|run| !run.is_live && run.round.is_none() && counts(run))?;
            run.spent.map(|spent| spent.importing_s + spent.starting_s)
        };
        self.history.trials().iter().rev().filter_map(start_of).take(LAST).collect()
    }

    /// Returns the best feasible trial with its score, the first among equals. Each trial is judged once.
    pub(super) fn best(&mut self, objective: &Objective) -> Option<(&Trial, f64)> {
        let trials = self.history.trials();
        for (place, trial) in trials.iter().enumerate().skip(self.judged) {
            if let Some(score) = objective.score_of(&trial.outcome).filter(|_| !trial.purpose.is_repeated())
                && self.best.is_none_or(|(_, top)| score > top)
            {
                self.best = Some((place, score));
            }
        }
        self.judged = trials.len();
        self.best.and_then(|(place, score)| Some((trials.get(place)?.as_ref(), score)))
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

/// The part of a space without closed parameters.
#[derive(Debug, Default)]
pub(super) struct Open {
    closed: Vec<String>,
    /// `None` if no parameter is closed.
    space: Option<Space>,
}

impl Open {
    /// Closes the parameters that a history shows to have no effect.
    pub(super) fn update(&mut self, space: &Space, history: &History) {
        let closed = history.closed();
        if self.closed != closed {
            self.space = space.with_only(|parameter| closed.contains(&parameter.name()).then_some(0)).ok();
            self.closed = closed.into_iter().map(str::to_owned).collect();
        }
    }

    pub(super) fn space<'s>(&'s self, whole: &'s Space) -> &'s Space {
        self.space.as_ref().unwrap_or(whole)
    }
}

/// Returns the history that a strategy sees in the open part of a space, and the config to start from. The history is `None` if it
/// is the real history.
pub(super) fn seen(space: &Space, history: &History, baseline: Option<&Config>) -> (Option<History>, Option<Config>) {
    let as_it_is = baseline.filter(|config| config.is_as_it_is());
    let closed = history.closed();
    if as_it_is.is_none() && closed.is_empty() {
        return (None, baseline.cloned());
    }
    let told = as_it_is.and_then(|as_it_is| history.of(as_it_is).find_map(|trial| trial.outcome.measurement()));
    let set = as_it_is.map(|as_it_is| space.settings(as_it_is)).unwrap_or_default();
    // A closed parameter has a single setting, which is as good as none.
    let used = told.map(|measurement| arrival::used(space, &measurement.facts, &set).without(&closed));
    let same = used.as_ref().and_then(|used| arrival::same(space, used));
    let near = || match used.as_ref() {
        Some(used) => arrival::nearest(space, used),
        None => opened(space, baseline?),
    };
    let start = same.clone().or_else(near);
    let in_space = |trial: &Arc<Trial>| {
        let config = if trial.config.is_as_it_is() { same.clone() } else { opened(space, &trial.config) };
        let config = config.filter(|_| trial.outcome.closes().is_empty())?;
        let is_same = config == trial.config;
        Some(if is_same { Arc::clone(trial) } else { Arc::new(Trial { config, ..Trial::clone(trial) }) })
    };
    (Some(history.trials().iter().filter_map(in_space).collect()), start)
}

/// Returns the config of the open part that differs at most in closed parameters.
fn opened(space: &Space, config: &Config) -> Option<Config> {
    let levels = config.levels().zip(space.parameters());
    let levels: Vec<u32> =
        levels.map(|(level, parameter)| if parameter.len() == 1 { 0 } else { level.unwrap_or(0) }).collect();
    space.with_levels(&levels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Estimate, Purpose};
    use crate::search::tests::{crashed, measured, numbers, trial};

    #[test]
    fn the_best_is_that_of_all_trials_also_after_one_was_amended() {
        let (space, objective) = (numbers(0, 99), Objective::default());
        let mut trials = Trials::new(History::default(), None, 0);
        let rates = [3.0, 9.0, 9.0, 5.0];
        for (number, rate) in (1_u32..).zip(rates) {
            let outcome = measured(Estimate::point(rate));
            trials.history.push(trial(number, space.config(number.into()).unwrap(), outcome));
            trials.best(&objective);
        }
        let repeated =
            Trial { purpose: Purpose::Round, ..trial(5, space.config(5).unwrap(), measured(Estimate::point(20.0))) };
        trials.history.push(repeated);
        let best = |trials: &mut Trials| trials.best(&objective).map(|(trial, score)| (trial.number, score));
        assert_eq!(best(&mut trials), Some((2, 9.0)));
        trials.amend(trial(2, space.config(2).unwrap(), crashed()));
        assert_eq!(best(&mut trials), Some((3, 9.0)));
    }
}
