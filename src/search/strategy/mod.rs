//! The strategies, which propose the next config.

mod anneal;
mod bayes;
mod earlier;
mod grid;
mod random;
mod walls;

use std::collections::BTreeMap;

pub use earlier::{Earlier, EarlierError, EarlierStudy};

use crate::model::{Config, History, Measurement, Memory, Objective, Permutation, Precision, Space, Trial};
use crate::probe::stats::NORMAL_95;
use walls::Walls;

/// The result so far of a probe under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoFar {
    /// Its score, by the objective.
    pub score: f64,
    /// Half the width of the score's interval, as a share of the score.
    pub half_width: f64,
}

/// The input of a strategy: everything that its answer may depend on.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The space to search.
    pub space: &'a Space,
    /// The objective.
    pub objective: &'a Objective,
    /// Finished trials, oldest first.
    pub history: &'a History,
    /// Configs that are being probed.
    pub pending: &'a [Config],
    /// The results so far of the pending configs, in the same order. Missing entries count as `None`.
    pub so_far: &'a [Option<SoFar>],
    /// The config to start from, if known: the baseline.
    pub start: Option<&'a Config>,
    /// Probes that the budget still allows.
    pub probes_left: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// The device's speed of matrix products in each precision, as a multiple of its speed in fp32, if it was measured.
    pub precision_speeds: Option<&'a BTreeMap<Precision, f64>>,
    /// The lessons from earlier studies, on other devices or with other models.
    pub earlier: &'a [Earlier],
    /// The standard deviation between runs of one config, as a share of their mean; zero if unknown.
    pub between_runs: f64,
    walls: Walls<'a>,
}

impl<'a> View<'a> {
    /// Returns the last config that was tried, if some parameters change while a process trains and the rest need a new process.
    fn last_in_process(&self) -> Option<&'a Config> {
        let live = self.space.parameters().iter().filter(|parameter| parameter.is_live()).count();
        let matters = live > 0 && live < self.space.parameters().len();
        self.history.searched().last().filter(|_| matters).map(|trial| &trial.config)
    }

    /// A view of a search.
    pub fn new(
        space: &'a Space,
        objective: &'a Objective,
        history: &'a History,
        pending: &'a [Config],
        start: Option<&'a Config>,
    ) -> Self {
        Self {
            space,
            objective,
            history,
            pending,
            so_far: &[],
            start,
            probes_left: u32::MAX,
            seed: 0,
            precision_speeds: None,
            earlier: &[],
            between_runs: 0.0,
            walls: Walls::of(space, objective, history),
        }
    }

    fn under_way(&self) -> impl Iterator<Item = (&'a Config, Option<SoFar>)> {
        let so_far = self.so_far.iter().copied().chain(std::iter::repeat(None));
        self.pending.iter().zip(so_far)
    }

    /// Sets the remaining probes of the budget, and the seed.
    #[must_use]
    pub fn with(self, probes_left: u32, seed: u64) -> Self {
        Self { probes_left, seed, ..self }
    }

    /// Sets the earlier studies of the same parameters, as [seen from](EarlierStudy::seen_from) this space and
    /// objective.
    #[must_use]
    pub fn with_earlier(self, earlier: &'a [Earlier]) -> Self {
        Self { earlier, ..self }
    }

    /// Returns half the width, as a share, of the interval into which another run of a config falls, if the measurement has one.
    pub(crate) fn half_width(&self, measurement: &Measurement) -> Option<f64> {
        let half = self.objective.estimate(measurement)?.relative_half_width()?;
        Some(half.hypot(NORMAL_95 * self.between_runs))
    }

    /// Returns true if a config is worth proposing. Such a config was not probed, is not pending, and is not known to need too much
    /// memory.
    pub fn is_open(&self, config: &Config) -> bool {
        !self.history.is_settled(config) && !self.pending.contains(config) && !self.is_ruled_out(config)
    }

    /// Returns true if a config needs at least as much memory as a config that did not fit.
    pub fn is_ruled_out(&self, config: &Config) -> bool {
        self.walls.rule_out(self.space, config)
    }

    /// Returns a different seed for each proposal of each search.
    fn seed_of_draw(&self) -> u64 {
        let number = self.history.trials().len() + self.pending.len();
        let draw = Permutation::new(1 << 64, self.seed).at(number as u128).unwrap_or(0);
        u64::try_from(draw).unwrap_or(0)
    }

    /// Draws a random wanted config, without memory of earlier draws; `None` if wanted configs are rare.
    fn drawn(&self, is_wanted: &dyn Fn(&Config) -> bool) -> Option<Config> {
        /// Wanted configs count as rare after `DRAWS` draws. They also count as rare if none of the first `FIRST_DRAWS` draws is
        /// allowed and may fit. Round numbers.
        const DRAWS: u128 = 1 << 17;
        const FIRST_DRAWS: u128 = 1 << 12;
        /// The number of draws from the configs that the rules allow, if these are a small part of the whole: a round number.
        const SPARSE_DRAWS: usize = 256;
        if self.space.is_sparse() {
            return self.space.draws(self.seed_of_draw(), SPARSE_DRAWS).into_iter().find(|config| is_wanted(config));
        }
        let size = self.space.raw_size()?;
        let order = Permutation::new(size, self.seed_of_draw());
        let mut is_any_allowed = false;
        for place in 0..size.min(DRAWS) {
            if place == FIRST_DRAWS && !is_any_allowed {
                return None;
            }
            let Some(config) = order.at(place).and_then(|index| self.space.config(index)) else { continue };
            is_any_allowed |= !self.is_ruled_out(&config);
            if is_wanted(&config) {
                return Some(config);
            }
        }
        None
    }

    /// Returns the configs that are known to need too much memory, without configs for which that follows from another config.
    pub fn walls(&self) -> &[(&'a Config, Memory)] {
        &self.walls.walls
    }

    /// Returns the best feasible trial so far, the first among equals.
    pub fn best(&self) -> Option<(&'a Trial, f64)> {
        let mut best: Option<(&Trial, f64)> = None;
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
    /// The reason for it, in a phrase; `None` without a particular reason.
    pub reason: Option<String>,
    /// The expected gain over the best so far, as a share of the best, if a model predicts it; a worse result counts as no gain.
    pub gain: Option<f64>,
}

impl From<Config> for Proposal {
    fn from(config: Config) -> Self {
        Self { config, reason: None, gain: None }
    }
}

/// Proposes configs.
///
/// The answer is a function of the view and nothing else, so an interrupted search continues as if it had not been
/// interrupted. A strategy may keep intermediate results, but a new one must give the same answer to the same view.
pub trait Strategy: Send {
    /// Returns the next config to probe, which is [open](View::is_open); `None` if no config is worth proposing.
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal>;
}

/// The table row of a strategy.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name in a spec.
    pub name: &'static str,
    /// Its description, in one line.
    pub about: &'static str,
    /// Makes an instance.
    pub build: fn() -> Box<dyn Strategy>,
}

/// All strategies, the default first.
pub const STRATEGIES: &[Entry] = &[bayes::AUTO, anneal::ENTRY, bayes::ENTRY, grid::ENTRY, random::ENTRY];

/// Returns the strategy of this name.
pub fn strategy(name: &str) -> Option<&'static Entry> {
    STRATEGIES.iter().find(|entry| entry.name == name)
}

/// The names of the strategies that learn from earlier studies.
pub const LEARNING: &[&str] = &[bayes::AUTO.name, bayes::ENTRY.name];

/// The number of settings in a row that a walk may try without success before a strategy gives up.
///
/// Listed spaces up to this size are searched to their end, however few configs the rules allow.
const PATIENCE: u64 = 4_000_000;
