//! Counts how much of the space a search has tried.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::Study;
use crate::model::{Config, Count, Trial};

/// The number of configs tried besides the baseline, and the number of configs in the space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternatives {
    /// The configs that were probed, whatever the outcome.
    pub tried: usize,
    /// The number of configs in the space: `363` or `1.20e9`; `unknown` if bounded work cannot count them.
    pub of: String,
}

impl Alternatives {
    /// Returns both numbers as text: `12 of 363 alternatives tried`.
    pub fn in_words(&self) -> String {
        let Self { tried, of } = self;
        if *of == Count::Unknown.to_string() {
            return format!("{tried} alternatives tried, {}", Count::Unknown.in_words());
        }
        format!("{tried} of {of} alternatives tried")
    }
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

    /// Counts the rounds.
    pub fn rounds(&self) -> usize {
        let in_round = |trial: &Trial| Some(trial.outcome.measurement()?.round.as_ref()?.number);
        let rounds: HashSet<u32> = self.history.trials().iter().filter_map(|trial| in_round(trial)).collect();
        rounds.len()
    }

    /// Returns true if other programs kept the machine busy in most of the probes.
    pub fn is_machine_busy(&self) -> bool {
        let measured = self.history.trials().iter().filter_map(|trial| trial.outcome.measurement());
        let (busy, all) = measured.fold((0, 0), |(busy, all), measurement| {
            (busy + usize::from(measurement.machine.foreign_cpu_share.is_some()), all + 1)
        });
        busy * 2 > all
    }
}
