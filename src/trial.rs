//! A probed config with its outcome, and all of them so far.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::space::Config;

/// Why a config was probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// It is what the user runs today.
    Baseline,
    /// The strategy proposed it.
    Search,
    /// It is a leader (or the baseline) that is measured again before one is named.
    Confirm,
}

/// A config, its outcome, a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Trials count from 1; a log has the same number.
    pub number: u32,
    /// Why it was probed.
    pub purpose: Purpose,
    /// What was probed.
    pub config: Config,
    /// How it ended.
    pub outcome: Outcome,
    /// Wall time of the probe, starting and cleaning up included.
    pub elapsed: Duration,
}

/// All finished trials, oldest first.
#[derive(Debug, Clone, Default)]
pub struct History {
    trials: Vec<Trial>,
    by_config: HashMap<Config, Vec<usize>>,
}

impl History {
    /// Adds a finished trial.
    pub fn push(&mut self, trial: Trial) {
        self.by_config.entry(trial.config.clone()).or_default().push(self.trials.len());
        self.trials.push(trial);
    }

    /// The trials, oldest first.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// The trials of one config, oldest first.
    pub fn of(&self, config: &Config) -> impl Iterator<Item = &Trial> {
        self.by_config.get(config).into_iter().flatten().map(|&place| &self.trials[place])
    }

    /// Whether the config was probed.
    pub fn contains(&self, config: &Config) -> bool {
        self.by_config.contains_key(config)
    }

    /// Trials that looked for a better config, the baseline included; confirmations are not among them.
    pub fn searched(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| trial.purpose != Purpose::Confirm)
    }

    /// The wall time that all trials took together.
    pub fn elapsed(&self) -> Duration {
        self.trials.iter().map(|trial| trial.elapsed).sum()
    }
}

impl FromIterator<Trial> for History {
    fn from_iter<I: IntoIterator<Item = Trial>>(trials: I) -> Self {
        let mut history = Self::default();
        trials.into_iter().for_each(|trial| history.push(trial));
        history
    }
}
