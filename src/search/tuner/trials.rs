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

/// The best trial so far, found without judging all trials again after each probe.
#[derive(Debug, Default)]
struct Leader {
    /// The identity of the history whose first `seen` trials were judged.
    of: Arc<()>,
    seen: usize,
    /// Its place in the history, and its score.
    best: Option<(usize, f64)>,
}

impl Leader {
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

/// The history and the start that a strategy sees, as the real history grows.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// `None` if it is the real history.
    history: Option<History>,
    start: Option<Config>,
    /// The config with the settings of the unmodified job.
    same: Option<Config>,
    basis: Option<Basis>,
    /// The number of trials of the real history that were read.
    trials: usize,
}

/// The history that a strategy sees is continued as long as all of these fields stay the same.
#[derive(Debug)]
struct Basis {
    space: Arc<()>,
    history: Arc<()>,
    /// The baseline, whether the unmodified job has reported its settings, and the closed parameters.
    asked: (Option<Config>, bool, Vec<String>),
}

impl Seen {
    /// Adds the new trials in the open part of a space.
    pub(super) fn update(&mut self, space: &Space, history: &History, baseline: Option<&Config>) {
        let as_it_is = baseline.filter(|config| config.is_as_it_is());
        let closed = history.closed();
        if as_it_is.is_none() && closed.is_empty() {
            *self = Self { start: baseline.cloned(), ..Self::default() };
            return;
        }
        let told = as_it_is.and_then(|as_it_is| history.of(as_it_is).find_map(|trial| trial.outcome.measurement()));
        let asked = (baseline.cloned(), told.is_some(), closed.iter().map(|&name| name.to_owned()).collect());
        let goes_on = self.basis.as_ref().is_some_and(|basis| {
            Arc::ptr_eq(&basis.space, space.identity())
                && Arc::ptr_eq(&basis.history, history.identity())
                && basis.asked == asked
        });
        if !goes_on {
            let set = as_it_is.map(|as_it_is| space.settings(as_it_is)).unwrap_or_default();
            // A closed parameter has a single setting, which is as good as none.
            let used = told.map(|measurement| arrival::used(space, &measurement.facts, &set).without(&closed));
            let same = used.as_ref().and_then(|used| arrival::same(space, used));
            let near = || match used.as_ref() {
                Some(used) => arrival::nearest(space, used),
                None => opened(space, baseline?),
            };
            let start = same.clone().or_else(near);
            let (of_space, of_history) = (Arc::clone(space.identity()), Arc::clone(history.identity()));
            let basis = Some(Basis { space: of_space, history: of_history, asked });
            *self = Self { history: None, start, same, basis, trials: 0 };
        }
        let seen = self.history.get_or_insert_default();
        for trial in &history.trials()[self.trials..] {
            let config = if trial.config.is_as_it_is() { self.same.clone() } else { opened(space, &trial.config) };
            if let Some(config) = config.filter(|_| trial.outcome.closes().is_empty()) {
                seen.push(Trial { config, ..Trial::clone(trial) });
            }
        }
        self.trials = history.trials().len();
    }

    pub(super) fn history<'h>(&'h self, real: &'h History) -> &'h History {
        self.history.as_ref().unwrap_or(real)
    }

    pub(super) fn start(&self) -> Option<&Config> {
        self.start.as_ref()
    }
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
    use crate::search::strategy;
    use crate::search::tests::{crashed, measured, numbers, trial};

    #[test]
    fn it_is_the_same_as_that_of_all_trials_after_each() {
        let space = numbers(0, 99);
        let (mut history, mut leader, objective) = (History::default(), Leader::default(), Objective::default());
        use Purpose::{Baseline, Round, Search};
        let purposes = [Baseline, Search, Search, Round, Search, Search, Search, Search, Round];
        for (number, &purpose) in (1_u32..).zip(purposes.iter().cycle()).take(40) {
            // Some trials fail, some are equal, and some of the best are repetitions.
            let rate = Estimate::point(f64::from(number * 7 % 11));
            let outcome = if number % 6 == 0 { crashed() } else { measured(rate) };
            history.push(Trial { purpose, ..trial(number, space.config(number.into()).unwrap(), outcome) });
            let of_all = strategy::best(&objective, &history).map(|(trial, score)| (trial.number, score));
            let kept = leader.of(&objective, &history).map(|(trial, score)| (trial.number, score));
            assert_eq!(kept, of_all, "after {number}");
        }
    }
}
