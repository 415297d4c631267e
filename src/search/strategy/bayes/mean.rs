//! What the process starts from: nothing, the physics of a training step, or what an earlier study makes expect.
//!
//! Each is judged by how likely it makes the history, its own numbers and the kernel's included. The earlier study counts
//! with a weight from zero on that the history decides, so that one that misleads fades; it and the physics are dropped
//! where the history clearly speaks against them.

use std::sync::Arc;

use super::earlier::Lesson;
use super::fit::{self, Fitted};
use super::parts::Parts;
use super::physics::{self, Numbers, Physics};
use super::points::Axis;
use super::process::{Data, Process};
use crate::model::{Config, Space};

/// By how much the history may speak against a mean, as a logarithm of a ratio of likelihoods, before the process goes
/// without it.
const DOUBT: f64 = 2.0;

/// Whether a proposal after so many trials, failures among them, learns from an earlier study that is in doubt.
pub(super) fn is_its_turn(trials: usize) -> bool {
    [2, 4, 8].contains(&trials)
}

/// What a value is expected to be before the process adds what it knows.
#[derive(Debug)]
pub(super) enum Mean {
    /// The same everywhere.
    Nothing,
    /// The physics with its numbers.
    Physics(Box<(Physics, Numbers)>),
    /// A share of what an earlier study makes expect.
    Earlier(Arc<Lesson>, f64),
}

/// What the history is explained with.
pub(super) struct History<'h> {
    pub(super) space: &'h Space,
    pub(super) axes: &'h [Axis],
    pub(super) data: Data,
    /// The same values with nothing drawn together.
    pub(super) whole: Vec<f64>,
    pub(super) configs: Vec<&'h Config>,
    /// The share of each step that was spent waiting for data, where it was reported.
    pub(super) waits: Vec<Option<f64>>,
    /// How much of a logarithm (of a score, where there is none) one standard unit is.
    pub(super) deviation: f64,
    /// Whether there are logarithms.
    pub(super) is_of_ratios: bool,
    /// Whether a study that is in doubt is learned from.
    pub(super) is_its_turn: bool,
    pub(super) parts: Parts,
}

/// A mean, the kernel that goes along with it, and the negative logarithm of how likely both are.
struct Candidate {
    mean: Mean,
    around: Fitted,
    cost: f64,
}

impl Mean {
    /// The mean that the history makes most likely, with the kernel that goes along with it.
    ///
    /// While it does not tell whether an earlier study holds here, few proposals learn from one: where it misleads, what it
    /// praises may all be equally bad, and only a look elsewhere shows that.
    pub(super) fn most_likely(
        history: &History<'_>,
        physics: Option<&Physics>,
        lessons: &[Arc<Lesson>],
    ) -> (Self, Fitted) {
        /// By how much the history must speak for an earlier study before every proposal learns from it.
        const SURE: f64 = 3.0;
        let without = Self::without(history, physics);
        let Some(with) = Self::earlier(history, lessons) else { return (without.mean, without.around) };
        let evidence = without.cost - with.cost;
        let chosen = if evidence > SURE || (evidence > -DOUBT && history.is_its_turn) { with } else { without };
        (chosen.mean, chosen.around)
    }

    /// Nothing, or the physics.
    fn without(history: &History<'_>, physics: Option<&Physics>) -> Candidate {
        let plain = fit::fit(&history.data, history.axes, false, history.parts.share);
        let plain = Candidate { mean: Self::Nothing, cost: plain.cost, around: plain };
        let Some(physics) = physics else { return plain };
        // What lies far below says as much to a model that explains it, so both are judged by all of it.
        let mut data = history.data.clone();
        let against = if history.whole == data.values {
            plain.cost
        } else {
            data.values.clone_from(&history.whole);
            fit::fit(&data, history.axes, false, history.parts.share).cost
        };
        let known = physics::Known {
            space: history.space,
            configs: history.configs.clone(),
            values: &history.whole,
            deviation: history.deviation,
            waits: history.waits.clone(),
        };
        let (numbers, prior) = physics.fit(&known);
        let explained = Self::Physics(Box::new((physics.clone(), numbers))).around(history, prior);
        let cost = plain.cost + explained.cost - against;
        if cost > plain.cost + DOUBT { plain } else { Candidate { cost, ..explained } }
    }

    /// The earlier study that the history makes most likely. The kernel is fitted to what that one leaves, since this takes
    /// far longer than to compare them.
    fn earlier(history: &History<'_>, lessons: &[Arc<Lesson>]) -> Option<Candidate> {
        let unfitted = fit::unfitted(history.axes, history.parts.share);
        let process = Process::new(&history.data, history.axes, &unfitted).filter(|_| !lessons.is_empty())?;
        let weighted = lessons.iter().map(|lesson| (lesson, weight(history, lesson, &process)));
        let (lesson, weight) = weighted.min_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost))?;
        Some(Self::Earlier(Arc::clone(lesson), weight.weight).around(history, weight.prior))
    }

    fn around(self, history: &History<'_>, prior: f64) -> Candidate {
        let mut rest = history.data.clone();
        let scale = (history.deviation, history.is_of_ratios);
        let each = rest.values.iter_mut().zip(&history.whole).zip(&history.configs);
        each.for_each(|((value, whole), config)| *value = self.left(history.space, config, (*value, *whole), scale));
        let around = fit::fit(&rest, history.axes, true, history.parts.share);
        Candidate { mean: self, cost: around.cost + prior, around }
    }

    /// Whether an earlier study is part of it.
    pub(super) fn is_earlier(&self) -> bool {
        matches!(self, Self::Earlier(..))
    }

    /// The parameters that the mean depends on.
    pub(super) fn reads(&self, space: &Space) -> Vec<usize> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Physics(model) => model.0.reads(),
            Self::Earlier(..) => (0..space.parameters().len()).collect(),
        }
    }

    /// What the process is to know of a value, drawn together and whole: it, or what the mean leaves of it.
    pub(super) fn left(
        &self,
        space: &Space,
        config: &Config,
        (value, whole): (f64, f64),
        (unit, is_of_ratios): (f64, bool),
    ) -> f64 {
        match self {
            Self::Physics(model) => physics::drawn(whole - model.0.mean(space, config, &model.1) / unit),
            Self::Nothing | Self::Earlier(..) => value - self.value(space, config, unit, is_of_ratios),
        }
    }

    /// By how much the physics may expect other values, in standard units, and how likely each is.
    pub(super) fn others(&self, space: &Space, config: &Config, unit: f64, into: &mut Vec<(f64, f64)>) {
        if let Self::Physics(model) = self {
            let (physics, numbers) = model.as_ref();
            physics.other_means(space, config, numbers, into);
            into.iter_mut().for_each(|(shift, _)| *shift /= unit);
        }
    }

    /// Whether there may be others.
    pub(super) fn is_unsure(&self) -> bool {
        matches!(self, Self::Physics(..))
    }

    /// The mean of a config's standardised value with its variance: the physics' numbers are only so sure.
    pub(super) fn uncertain(&self, space: &Space, config: &Config, unit: f64, is_of_ratios: bool) -> (f64, f64) {
        match self {
            Self::Physics(model) => {
                let (physics, numbers) = model.as_ref();
                let (mean, variance) = physics.uncertain_mean(space, config, numbers);
                (mean / unit, variance / (unit * unit))
            }
            _ => (self.value(space, config, unit, is_of_ratios), 0.0),
        }
    }

    /// The mean of a config's standardised value, up to a constant.
    pub(super) fn value(&self, space: &Space, config: &Config, deviation: f64, is_of_ratios: bool) -> f64 {
        match self {
            Self::Nothing => 0.0,
            Self::Physics(model) => model.0.mean(space, config, &model.1) / deviation,
            Self::Earlier(lesson, weight) => {
                let mean = lesson.mean(space, config);
                match lesson.spread() {
                    // Ratios are the same there and here; other differences can only be compared in standard units.
                    Some(spread) if is_of_ratios => weight * (spread * mean) / deviation,
                    _ => weight * mean,
                }
            }
        }
    }
}

/// How much of an earlier study counts.
struct Weight {
    weight: f64,
    /// What the prior says of it.
    prior: f64,
    /// What the history and the prior say of it.
    cost: f64,
}

/// The weight that the history makes most likely, priors considered. How little the process expects what is left is a
/// square in the weight, so three weights tell all of it.
fn weight(history: &History<'_>, lesson: &Arc<Lesson>, process: &Process<'_>) -> Weight {
    /// That a study holds here as it did there is as likely as anything; against it is less so.
    const EXPECTED: f64 = 1.0;
    const DEVIATION: f64 = 0.5;
    const MOST: f64 = 1.5;
    let prior = |weight: f64| 0.5 * ((weight - EXPECTED) / DEVIATION) * ((weight - EXPECTED) / DEVIATION);
    let surprise = |weight: f64| {
        let mean = Mean::Earlier(Arc::clone(lesson), weight);
        let each = history.data.values.iter().zip(&history.configs);
        let rest = each
            .map(|(value, config)| value - mean.value(history.space, config, history.deviation, history.is_of_ratios));
        process.surprise(&rest.collect::<Vec<f64>>())
    };
    let (without, with, twice) = (surprise(0.0), surprise(1.0), surprise(2.0));
    let square = (twice - 2.0 * with + without) / 2.0 + 0.5 / (DEVIATION * DEVIATION);
    let slope = with - without - (twice - 2.0 * with + without) / 2.0 - EXPECTED / (DEVIATION * DEVIATION);
    let weight = (-slope / (2.0 * square)).clamp(0.0, MOST);
    let weight = if weight.is_finite() { weight } else { 0.0 };
    Weight { weight, prior: prior(weight), cost: surprise(weight) + prior(weight) }
}
