//! What proposes the next config.

mod anneal;
mod auto;
mod bayes;
mod descent;
mod earlier;
mod grid;
mod halving;
mod qmc;
mod random;
mod walls;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

pub use bayes::{Parts, bayes_with};

pub use earlier::{Earlier, EarlierError, EarlierStudy};

use crate::model::{Config, History, Memory, Objective, Precision, Space, Trial};
use walls::Walls;

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
    /// Probes that the budget still allows.
    pub probes_left: u32,
    /// What chance depends on.
    pub seed: u64,
    /// How many times as fast as in fp32 the device multiplies matrices in each precision, where that was measured.
    pub precision_speeds: Option<&'a BTreeMap<Precision, f64>>,
    /// What is known from earlier studies, on other devices or with other models.
    pub earlier: &'a [Earlier],
    /// Parameters that are worth varying before the others, by what the baseline waits for; often none.
    pub first: &'a [usize],
    /// Whether only those may differ from the start.
    is_narrow: bool,
    walls: Walls<'a>,
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
        Self {
            space,
            objective,
            history,
            pending,
            start,
            probes_left: u32::MAX,
            seed: 0,
            precision_speeds: None,
            earlier: &[],
            first: &[],
            is_narrow: false,
            walls: Walls::of(space, objective, history),
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

    /// Sets what is known from earlier studies of the same parameters, [seen from](EarlierStudy::seen_from) this space and
    /// objective.
    #[must_use]
    pub fn with_earlier(mut self, earlier: &'a [Earlier]) -> Self {
        self.earlier = earlier;
        self
    }

    /// Sets the parameters that are worth varying before the others.
    #[must_use]
    pub fn with_first(mut self, first: &'a [usize]) -> Self {
        self.first = first;
        self
    }

    /// The same view with only those configs open that differ from the start in nothing but the parameters that come first;
    /// `None` once these had their turns, or where none comes first.
    ///
    /// The turns are few: a strategy that learns from all parameters soon knows better than a diagnosis.
    pub fn narrowed(&self) -> Option<Self> {
        /// Turns beside the start's.
        const TURNS: usize = 4;
        /// Of all probes that there are, these are at most one in so many, but one at least.
        const ONE_IN: usize = 4;
        let searched = self.history.searched().count();
        let all = searched.saturating_add(self.probes_left as usize);
        let is_their_turn = searched > 0 && searched <= TURNS.min((all / ONE_IN).max(1));
        let narrows =
            self.start.is_some() && !self.first.is_empty() && self.first.len() < self.space.parameters().len();
        (narrows && is_their_turn && !self.is_narrow).then(|| Self { is_narrow: true, ..self.clone() })
    }

    /// Whether a config differs from the start in nothing but parameters that come first; those that are active in one of
    /// them alone do not count.
    fn is_near_start(&self, config: &Config) -> bool {
        let Some(start) = self.start else { return true };
        let others = (0..self.space.parameters().len()).filter(|at| !self.first.contains(at));
        others.into_iter().all(|at| match (config.level(at), start.level(at)) {
            (Some(level), Some(other)) => level == other,
            _ => true,
        })
    }

    /// Whether a config is worth proposing: not probed for the usual time, not failed, not pending, and not known to need
    /// too much memory.
    pub fn is_open(&self, config: &Config) -> bool {
        (!self.is_narrow || self.is_near_start(config))
            && !self.history.is_settled(config)
            && !self.pending.contains(config)
            && !self.is_ruled_out(config)
    }

    /// Whether a config needs at least as much memory as one that did not fit.
    pub fn is_ruled_out(&self, config: &Config) -> bool {
        self.walls.rule_out(self.space, config)
    }

    /// The configs that are known to need too much memory, without those of which it follows from another.
    pub fn walls(&self) -> &[(&'a Config, Memory)] {
        self.walls.all()
    }

    /// The best feasible trial so far; of equals the first. Short probes count only while nothing else may win.
    pub fn best(&self) -> Option<(&'a Trial, f64)> {
        let mut best: Option<(&'a Trial, f64)> = None;
        for trial in self.history.contenders(|outcome| self.objective.score_of(outcome).is_some()) {
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
    /// Of how many equal parts of the usual measuring time the probe gets one; `None` for all of it.
    pub one_in: Option<NonZeroU32>,
}

impl From<Config> for Proposal {
    fn from(config: Config) -> Self {
        Self { config, reason: None, gain: None, one_in: None }
    }
}

impl Proposal {
    /// A proposal under a [narrowed](View::narrowed) view: that little is expected of the few configs that it has says
    /// nothing about the others.
    fn among_first(self) -> Self {
        const WHY: &str = "the baseline's diagnosis comes first";
        let reason = self.reason.map_or_else(|| WHY.to_owned(), |reason| format!("{reason}; {WHY}"));
        Self { reason: Some(reason), gain: None, ..self }
    }
}

/// Proposes configs.
///
/// The answer is a function of the view and nothing else, so that a search that was cut off continues as if it had
/// not been: a strategy may keep what it worked out, but a new one must give the same answer to the same view.
pub trait Strategy: Send {
    /// The next config to probe: one that is [open](View::is_open), or `None` when there is none worth proposing.
    ///
    /// No config is proposed twice for the same length: one that was probed for [a part](Proposal::one_in) of the usual
    /// time is open, and comes again only for a larger part or the whole.
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
pub const STRATEGIES: &[Entry] =
    &[auto::ENTRY, anneal::ENTRY, bayes::ENTRY, descent::ENTRY, grid::ENTRY, halving::ENTRY, qmc::ENTRY, random::ENTRY];

/// The way of this name.
pub fn strategy(name: &str) -> Option<&'static Entry> {
    STRATEGIES.iter().find(|entry| entry.name == name)
}

/// The names of the ways that learn from earlier studies.
pub const LEARNING: &[&str] = &[auto::ENTRY.name, bayes::ENTRY.name];

/// Settings in a row that a walk may try in vain before a strategy says that there is nothing left.
///
/// Spaces up to this size are searched to their very end, whatever the rules leave of them.
const PATIENCE: u64 = 4_000_000;
