//! The part of a search that a strategy sees: the open part of the space, and what was found in it.
//!
//! A strategy knows configs of the space and nothing else. The job as it is counts as the config with the same
//! settings, if the space has it, so that it is not probed twice. If not, the strategy does not see it, and the search
//! starts at the nearest config. A parameter that nothing in the step takes is closed: it keeps its first setting only,
//! which is not applied.

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

/// The history and the start that a strategy sees.
pub(super) struct Seen {
    /// `None` if it is the real history.
    history: Option<History>,
    start: Option<Config>,
}

impl Seen {
    /// Makes what a strategy sees of the open part of a space.
    pub(super) fn of(space: &Space, history: &History, baseline: Option<&Config>) -> Self {
        let as_it_is = baseline.filter(|config| config.is_as_it_is());
        if as_it_is.is_none() && history.closed().is_empty() {
            return Self { history: None, start: baseline.cloned() };
        }
        let told =
            as_it_is.and_then(|as_it_is| history.of(as_it_is).find_map(|trial| trial.outcome.partial_measurement()));
        let set = as_it_is.map(|as_it_is| space.settings(as_it_is)).unwrap_or_default();
        // A closed parameter has a single setting, which is as good as none.
        let closed = history.closed();
        let used = told.map(|measurement| arrival::used(space, &measurement.facts, &set).without(&closed));
        let same = used.as_ref().and_then(|used| arrival::same(space, used));
        let near = || match used.as_ref() {
            Some(used) => arrival::nearest(space, used),
            None => opened(space, baseline?),
        };
        let start = same.clone().or_else(near);
        let as_seen = |trial: &Trial| {
            let config = if trial.config.is_as_it_is() { same.clone()? } else { opened(space, &trial.config)? };
            trial.outcome.closes().is_empty().then(|| Trial { config, ..trial.clone() })
        };
        Self { history: Some(history.trials().iter().filter_map(as_seen).collect()), start }
    }

    pub(super) fn history<'h>(&'h self, real: &'h History) -> &'h History {
        self.history.as_ref().unwrap_or(real)
    }

    pub(super) fn start(&self) -> Option<&Config> {
        self.start.as_ref()
    }
}

/// Returns the config of the open part that differs in closed parameters at most.
fn opened(space: &Space, config: &Config) -> Option<Config> {
    let levels = config.levels().zip(space.parameters());
    let levels: Vec<u32> =
        levels.map(|(level, parameter)| if parameter.len() == 1 { 0 } else { level.unwrap_or(0) }).collect();
    space.with_levels(&levels)
}
