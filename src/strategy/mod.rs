//! What proposes the next config.

mod auto;
mod bayes;
mod descent;
mod grid;
mod random;

use std::collections::BTreeMap;

pub use bayes::{Parts, bayes_with};

use crate::objective::Objective;
use crate::outcome::Memory;
use crate::precision::Precision;
use crate::space::{Config, Space};
use crate::trial::{History, Trial};

/// What a strategy sees: everything that its answer may depend on.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// What may be tried.
    pub space: &'a Space,
    /// What better means.
    pub objective: &'a Objective,
    /// Finished trials, oldest first.
    pub history: &'a History,
    /// Configs that are being probed.
    pub pending: &'a [Config],
    /// Where to start, if that is known: the baseline.
    pub start: Option<&'a Config>,
    /// Configs that the budget still allows.
    pub probes_left: u32,
    /// What chance depends on.
    pub seed: u64,
    /// How many times as fast as in fp32 the device multiplies matrices in each precision, where that was measured.
    pub precision_speeds: Option<&'a BTreeMap<Precision, f64>>,
    walls: Vec<(&'a Config, Memory)>,
}

impl<'a> View<'a> {
    /// A view of a search.
    pub fn new(
        space: &'a Space,
        objective: &'a Objective,
        history: &'a History,
        pending: &'a [Config],
        start: Option<&'a Config>,
    ) -> Self {
        let walls = history
            .trials()
            .iter()
            .filter_map(|trial| Some((&trial.config, objective.lacks_memory(&trial.outcome)?)))
            .collect();
        Self {
            space,
            objective,
            history,
            pending,
            start,
            probes_left: u32::MAX,
            seed: 0,
            precision_speeds: None,
            walls,
        }
    }

    /// Sets what the budget still allows, and the seed.
    #[must_use]
    pub fn with(mut self, probes_left: u32, seed: u64) -> Self {
        (self.probes_left, self.seed) = (probes_left, seed);
        self
    }

    /// Sets how fast the device is in each precision.
    #[must_use]
    pub fn with_precision_speeds(mut self, speeds: &'a BTreeMap<Precision, f64>) -> Self {
        self.precision_speeds = Some(speeds);
        self
    }

    /// Whether a config is worth proposing: not probed, not pending, and not known to need too much memory.
    pub fn is_open(&self, config: &Config) -> bool {
        !self.history.contains(config) && !self.pending.contains(config) && !self.is_ruled_out(config)
    }

    /// Whether a config needs at least as much memory as one that did not fit.
    pub fn is_ruled_out(&self, config: &Config) -> bool {
        self.walls.iter().any(|(failed, memory)| self.space.needs_as_much_memory(config, failed, *memory))
    }

    /// The configs that are known to need too much memory.
    pub fn walls(&self) -> &[(&'a Config, Memory)] {
        &self.walls
    }

    /// The best feasible trial so far; of equals the first.
    pub fn best(&self) -> Option<(&'a Trial, f64)> {
        let mut best: Option<(&'a Trial, f64)> = None;
        for trial in self.history.searched() {
            if let Some(score) = self.objective.score_of(&trial.outcome)
                && best.is_none_or(|(_, top)| score > top)
            {
                best = Some((trial, score));
            }
        }
        best
    }
}

/// A config that is worth probing, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The config.
    pub config: Config,
    /// What speaks for it, in a phrase; `None` where nothing in particular does.
    pub reason: Option<String>,
    /// How much better than the best so far the result is expected to be on average, as a share of the best, where a
    /// model tells; what turns out worse counts as no gain.
    pub gain: Option<f64>,
}

impl From<Config> for Proposal {
    fn from(config: Config) -> Self {
        Self { config, reason: None, gain: None }
    }
}

/// Proposes configs.
///
/// The answer is a function of the view and nothing else, so that a search that was cut off continues as if it had
/// not been: a strategy may keep what it worked out, but a new one must give the same answer to the same view.
pub trait Strategy: Send {
    /// The next config to probe: one that is [open](View::is_open), or `None` when there is none worth proposing.
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal>;
}

/// One way to search.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name in a spec.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Makes one.
    pub build: fn() -> Box<dyn Strategy>,
}

/// All ways to search, the default first.
pub const STRATEGIES: &[Entry] = &[auto::ENTRY, bayes::ENTRY, descent::ENTRY, grid::ENTRY, random::ENTRY];

/// The way of this name.
pub fn strategy(name: &str) -> Option<&'static Entry> {
    STRATEGIES.iter().find(|entry| entry.name == name)
}

/// Settings in a row that a walk may try in vain before a strategy says that there is nothing left.
///
/// Spaces up to this size are searched to their very end, whatever the rules leave of them.
const PATIENCE: u64 = 4_000_000;
