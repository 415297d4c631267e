//! Chooses the mean that the process starts from: a constant, the physics of a training step, or an earlier study.
//!
//! Each is judged by how likely it makes the history, including its own coefficients and the kernel's. The earlier
//! study gets a weight from zero upwards that the history decides, so a misleading study fades. Both it and the physics
//! are dropped when the history clearly speaks against them.

use std::sync::Arc;

use super::earlier::Lesson;
use super::fit::{self, Fitted};
use super::physics::{self, Numbers, Physics};
use super::points::Axis;
use super::process::{Data, Process};
use crate::model::{Config, Space};

/// The logarithm of a likelihood ratio by which the history may speak against a mean before the process drops it. A
/// round number: a ratio of about 7.
const DOUBT: f64 = 2.0;

/// Returns true if the proposal after this many trials, failures included, learns from an earlier study that is in doubt.
pub(super) fn is_its_turn(trials: usize) -> bool {
    [2, 4, 8].contains(&trials)
}

/// The expected value before the process adds what the trials show.
#[derive(Debug)]
pub(super) enum Mean {
    /// The same value everywhere.
    Nothing,
    /// The physics with its numbers.
    Physics(Box<(Physics, Numbers)>),
    /// A share of the prediction of an earlier study.
    Earlier(Arc<Lesson>, f64),
}

/// The history, as the means are fitted to it.
pub(super) struct History<'h> {
    pub(super) space: &'h Space,
    pub(super) axes: &'h [Axis],
    pub(super) data: Data,
    /// The same values without low ones being compressed.
    pub(super) whole: Vec<f64>,
    pub(super) configs: Vec<&'h Config>,
    /// The share of each step that was spent waiting for data, where it was reported.
    pub(super) waits: Vec<Option<f64>>,
    /// The size of one standard unit, as a difference of logarithms, or of scores if they have no logarithm.
    pub(super) deviation: f64,
    /// True if values are logarithms.
    pub(super) is_of_ratios: bool,
    /// True if this proposal learns from a study that is in doubt.
    pub(super) is_its_turn: bool,
}

/// A mean, its fitted kernel, and the negative logarithm of how likely both are.
struct Candidate {
    mean: Mean,
    around: Fitted,
    cost: f64,
}

impl Mean {
    /// Finds the mean that the history makes most likely, with its kernel.
    ///
    /// While it is unclear whether an earlier study holds here, only a few proposals learn from it. If the study misleads, all
    /// configs that it recommends may be equally bad, and only a look elsewhere shows that.
    pub(super) fn most_likely(
        history: &History<'_>,
        physics: Option<&Physics>,
        lessons: &[Arc<Lesson>],
    ) -> (Self, Fitted) {
        /// The logarithm of a likelihood ratio by which the history must speak for an earlier study before every
        /// proposal learns from it. A round number: a ratio of about 20.
        const SURE: f64 = 3.0;
        let without = Self::without(history, physics);
        let Some(with) = Self::earlier(history, lessons) else { return (without.mean, without.around) };
        let evidence = without.cost - with.cost;
        let chosen = if evidence > SURE || (evidence > -DOUBT && history.is_its_turn) { with } else { without };
        (chosen.mean, chosen.around)
    }

    /// Returns the constant mean, or the physics if that is more likely.
    fn without(history: &History<'_>, physics: Option<&Physics>) -> Candidate {
        let plain = fit::fit(&history.data, history.axes, false);
        let plain = Candidate { mean: Self::Nothing, cost: plain.cost, around: plain };
        let Some(physics) = physics else { return plain };
        // Values far below the rest carry as much information for a model that explains them, so both means are judged by all
        // values.
        let mut data = history.data.clone();
        let against = if history.whole == data.values {
            plain.cost
        } else {
            data.values.clone_from(&history.whole);
            fit::fit(&data, history.axes, false).cost
        };
        let known = physics::Known {
            space: history.space,
            configs: history.configs.clone(),
            values: &history.whole,
            deviation: history.deviation,
            waits: history.waits.clone(),
            errors: history.data.noise.iter().map(|variance| variance.sqrt() * history.deviation).collect(),
        };
        let (numbers, prior) = physics.fit(&known);
        let explained = Self::Physics(Box::new((physics.clone(), numbers))).around(history, prior);
        let cost = plain.cost + explained.cost - against;
        if cost > plain.cost + DOUBT { plain } else { Candidate { cost, ..explained } }
    }

    /// Finds the earlier study that the history makes most likely. The kernel is fitted to the residuals of that study
    /// only, since a fit takes far longer than a comparison.
    fn earlier(history: &History<'_>, lessons: &[Arc<Lesson>]) -> Option<Candidate> {
        let unfitted = fit::unfitted(history.axes);
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
        let around = fit::fit(&rest, history.axes, true);
        Candidate { mean: self, cost: around.cost + prior, around }
    }

    /// Returns true if an earlier study is part of it.
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

    /// Returns the values for the process, compressed and whole: the values themselves, or the residuals of the mean.
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

    /// Adds the alternative values that the physics allows, in standard units, with their probabilities.
    pub(super) fn others(&self, space: &Space, config: &Config, unit: f64, into: &mut Vec<(f64, f64)>) {
        if let Self::Physics(model) = self {
            let (physics, numbers) = model.as_ref();
            physics.other_means(space, config, numbers, into);
            into.iter_mut().for_each(|(shift, _)| *shift /= unit);
        }
    }

    /// Returns true if a config may have alternative values.
    pub(super) fn is_unsure(&self) -> bool {
        matches!(self, Self::Physics(..))
    }

    /// Returns the mean of a config's standardised value with its variance, since the coefficients of the physics are
    /// uncertain.
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

/// The weight of an earlier study.
struct Weight {
    weight: f64,
    /// The prior's contribution to the cost.
    prior: f64,
    /// The cost from history and prior together.
    cost: f64,
}

/// Finds the weight that the history and the prior make most likely. The surprise of the residuals is quadratic in the
/// weight, so three weights determine it.
fn weight(history: &History<'_>, lesson: &Arc<Lesson>, process: &Process<'_>) -> Weight {
    /// The prior: a study most likely holds here as it did there, and a weight against it is less likely. Round
    /// numbers.
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
