//! The part of a search that a strategy sees: the open part of the space, and the history in it.
//!
//! A strategy knows configs of the space and nothing else. The unmodified job counts as the config with the same settings, if the
//! space has it, so that it is not probed twice. If not, the strategy does not see it, and the search starts at the nearest config.
//! A parameter that nothing in the step takes is closed: it keeps only its first setting, which is not applied.

use std::sync::Arc;

use crate::model::{Config, History, Space, Trial, arrival};

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
            self.space = space.with_first_settings(&closed).ok();
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

/// The seen history goes on as long as all of this stays the same.
#[derive(Debug, PartialEq)]
struct Basis {
    space: Identity,
    history: Identity,
    baseline: Option<Config>,
    /// True if the unmodified job has reported its settings.
    is_told: bool,
    closed: Vec<String>,
}

/// Equal to itself only.
#[derive(Debug)]
struct Identity(Arc<()>);

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
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
        let basis = Basis {
            space: Identity(Arc::clone(space.identity())),
            history: Identity(Arc::clone(history.identity())),
            baseline: baseline.cloned(),
            is_told: told.is_some(),
            closed: closed.iter().map(|&name| name.to_owned()).collect(),
        };
        if self.basis.as_ref() != Some(&basis) {
            let set = as_it_is.map(|as_it_is| space.settings(as_it_is)).unwrap_or_default();
            // A closed parameter has a single setting, which is as good as none.
            let used = told.map(|measurement| arrival::used(space, &measurement.facts, &set).without(&closed));
            let same = used.as_ref().and_then(|used| arrival::same(space, used));
            let near = || match used.as_ref() {
                Some(used) => arrival::nearest(space, used),
                None => opened(space, baseline?),
            };
            let start = same.clone().or_else(near);
            *self = Self { history: None, start, same, basis: Some(basis), trials: 0 };
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
