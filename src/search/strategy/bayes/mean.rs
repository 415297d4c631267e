//! Chooses the mean that the process starts from: a constant, the physics of a training step, or an earlier study.
//!
//! Each is judged by how likely it makes the history, including its own coefficients and the kernel's. The history decides the
//! weight of the earlier study, from zero upwards, so a misleading study loses its weight. The study and the physics are dropped if
//! the history clearly contradicts them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::fit::{self, Fitted};
use super::physics::{self, Numbers, Physics};
use super::points::{Axis, Points, axes};
use super::process::{Data, History, Process};
use super::scale::{EXPECTED, Scale};
use crate::model::{Config, Objective, Parameter, Space, Trial};
use crate::search::strategy::earlier::{Earlier, spread};

/// A mean is dropped if the logarithm of the likelihood ratio against it exceeds this. A round number: a ratio of about 7.
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
        /// Every proposal learns from an earlier study if the logarithm of the likelihood ratio for it exceeds this. A round
        /// number: a ratio of about 20.
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
        let whole = Data { values: history.whole(), ..history.data.clone() };
        let is_whole = whole.values == history.data.values;
        let against = if is_whole { plain.cost } else { fit::fit(&whole, history.axes, false).cost };
        let (numbers, prior) = physics.fit(history);
        let explained = Self::Physics(Box::new((physics.clone(), numbers))).around(history, prior);
        let cost = plain.cost + explained.cost - against;
        if cost > plain.cost + DOUBT { plain } else { Candidate { cost, ..explained } }
    }

    /// Finds the most likely earlier study. The kernel is fitted to its residuals only, since fits take far longer than
    /// comparisons.
    fn earlier(history: &History<'_>, lessons: &[Arc<Lesson>]) -> Option<Candidate> {
        let unfitted = fit::unfitted(history.axes);
        let process = Process::new(&history.data, history.axes, &unfitted).filter(|_| !lessons.is_empty())?;
        let weighted = lessons.iter().map(|lesson| (lesson, weight(history, lesson, &process)));
        let (lesson, (weight, prior, _)) = weighted.min_by(|(_, (.., a)), (_, (.., b))| a.total_cmp(b))?;
        Some(Self::Earlier(Arc::clone(lesson), weight).around(history, prior))
    }

    fn around(self, history: &History<'_>, prior: f64) -> Candidate {
        let left = |(trial, score): &&(&Trial, f64)| self.left(history.space, &trial.config, *score, history.scale);
        let rest = Data { values: history.scored.iter().map(left).collect(), ..history.data.clone() };
        let around = fit::fit(&rest, history.axes, true);
        Candidate { mean: self, cost: around.cost + prior, around }
    }

    /// The parameters that the mean depends on.
    pub(super) fn reads(&self, space: &Space) -> Vec<usize> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Physics(model) => model.0.reads(),
            Self::Earlier(..) => (0..space.parameters().len()).collect(),
        }
    }

    /// Returns the value of a score for the process: the residual of the mean.
    pub(super) fn left(&self, space: &Space, config: &Config, score: f64, scale: &Scale) -> f64 {
        match self {
            Self::Physics(_) => physics::compressed(scale.whole_value(score) - self.value(space, config, scale)),
            Self::Nothing | Self::Earlier(..) => scale.value(score) - self.value(space, config, scale),
        }
    }

    /// Adds the alternative values that the physics allows, in standard units, with their probabilities.
    pub(super) fn others(&self, space: &Space, config: &Config, scale: &Scale, into: &mut Vec<(f64, f64)>) {
        if let Self::Physics(model) = self {
            let (physics, numbers) = model.as_ref();
            physics.other_means(space, config, numbers, into);
            into.iter_mut().for_each(|(shift, _)| *shift /= scale.deviation);
        }
    }

    /// Returns the mean of a config's standardised value, with the variance from the coefficients of the physics.
    pub(super) fn uncertain(&self, space: &Space, config: &Config, scale: &Scale) -> (f64, f64) {
        match self {
            Self::Physics(model) => {
                let (mean, variance) = model.0.uncertain_mean(space, config, &model.1);
                (mean / scale.deviation, variance / (scale.deviation * scale.deviation))
            }
            _ => (self.value(space, config, scale), 0.0),
        }
    }

    /// The mean of a config's standardised value, up to a constant.
    fn value(&self, space: &Space, config: &Config, scale: &Scale) -> f64 {
        match self {
            Self::Nothing => 0.0,
            Self::Physics(model) => model.0.mean(space, config, &model.1) / scale.deviation,
            Self::Earlier(lesson, weight) => {
                let mean = lesson.mean(space, config);
                match lesson.spread {
                    // Ratios are the same there and here; other differences can only be compared in standard units.
                    Some(spread) if scale.is_of_ratios() => weight * (spread * mean) / scale.deviation,
                    _ => weight * mean,
                }
            }
        }
    }
}

/// Finds the weight of an earlier study that the history and the prior make most likely. Also returns the prior's contribution to
/// the cost, and the cost. The surprise of the residuals is quadratic in the weight, so three weights determine it.
fn weight(history: &History<'_>, lesson: &Arc<Lesson>, process: &Process) -> (f64, f64, f64) {
    /// The prior: a study most likely holds here as it did there, and a weight against it is less likely. Round
    /// numbers.
    const EXPECTED: f64 = 1.0;
    const DEVIATION: f64 = 0.5;
    const MOST: f64 = 1.5;
    let prior = |weight: f64| 0.5 * ((weight - EXPECTED) / DEVIATION) * ((weight - EXPECTED) / DEVIATION);
    let surprise = |weight: f64| {
        let mean = Mean::Earlier(Arc::clone(lesson), weight);
        let left = |(trial, score): &&(&Trial, f64)| mean.left(history.space, &trial.config, *score, history.scale);
        process.surprise(&history.scored.iter().map(left).collect::<Vec<f64>>())
    };
    let (without, with, twice) = (surprise(0.0), surprise(1.0), surprise(2.0));
    let square = (twice - 2.0 * with + without) / 2.0 + 0.5 / (DEVIATION * DEVIATION);
    let slope = with - without - (twice - 2.0 * with + without) / 2.0 - EXPECTED / (DEVIATION * DEVIATION);
    let weight = (-slope / (2.0 * square)).clamp(0.0, MOST);
    let weight = if weight.is_finite() { weight } else { 0.0 };
    (weight, prior(weight), surprise(weight) + prior(weight))
}

/// The most configs of a study that the kernel is fitted to: the work grows with the cube of their number.
const MOST_FITTED: usize = 64;
/// The most configs whose means are kept: a bound on memory.
const MOST_KEPT: usize = 200_000;

/// Predicts a config's score from an earlier study: a Gaussian process over the common parameters.
///
/// It uses only the shape, not the level, since another device or model has another level. Outside the settings that the study
/// tried, it predicts the same as at the edge. Failures are ignored, since a config that did not run there may run here.
#[derive(Debug)]
pub(super) struct Lesson {
    axes: Vec<Common>,
    process: Process,
    /// The standard deviation of the study's scores, as logarithms; `None` if they have no logarithm.
    pub(super) spread: Option<f64>,
    /// The means that were computed so far.
    means: Mutex<HashMap<Config, f64>>,
}

/// A common parameter with the range that was tried.
#[derive(Debug)]
struct Common {
    parameter: usize,
    axis: Axis,
    first: f64,
    last: f64,
}

impl Lesson {
    /// Fits a process to a study; `None` if its configs do not differ.
    pub(super) fn of(space: &Space, objective: &Objective, earlier: &Earlier) -> Option<Self> {
        let all = axes(space);
        let known = &earlier.points;
        let scores: Vec<f64> = known.iter().map(|point| point.score).collect();
        let scale = Scale::of(objective, &scores, EXPECTED);
        let place = |common: usize, level: f64| {
            let at = earlier.parameters[common];
            between(all[at], &space.parameters()[at], level)
        };
        let row = |levels: &[f64]| levels.iter().enumerate().map(|(common, &level)| place(common, level)).collect();
        let rows: Vec<Vec<f64>> = known.iter().map(|point| row(&point.levels)).collect();
        let common = |(common, &parameter): (usize, &usize)| {
            let tried = || rows.iter().map(|row| row[common]).filter(|place| !place.is_nan());
            let (first, last) = (tried().fold(f64::INFINITY, f64::min), tried().fold(f64::NEG_INFINITY, f64::max));
            Common { parameter, axis: all[parameter], first, last }
        };
        let common: Vec<Common> = earlier.parameters.iter().enumerate().map(common).collect();
        let axes: Vec<Axis> = common.iter().map(|common| common.axis).collect();
        let data = |of: &[usize]| {
            let points = Points::at(axes.len(), &of.iter().map(|&at| rows[at].clone()).collect::<Vec<_>>());
            Data::exact(points, of.iter().map(|&at| scale.value(scores[at])).collect())
        };
        let shape = fit::fit(&data(&spread(rows.len(), MOST_FITTED)), &axes, false).shape;
        let process = Process::new(&data(&(0..rows.len()).collect::<Vec<_>>()), &axes, &shape)?;
        let spread = scale.is_of_ratios().then_some(scale.deviation);
        Some(Self { axes: common, process, spread, means: Mutex::default() })
    }

    /// Returns the score that the study predicts for a config, up to a constant, in the study's standard units.
    fn mean(&self, space: &Space, config: &Config) -> f64 {
        let mut means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mean) = means.get(config) {
            return *mean;
        }
        let mean = self.expected(space, config);
        if means.len() >= MOST_KEPT {
            means.clear();
        }
        means.insert(config.clone(), mean);
        mean
    }

    fn expected(&self, space: &Space, config: &Config) -> f64 {
        let place = |common: &Common| {
            let parameter = &space.parameters()[common.parameter];
            let place = common.axis.place(parameter, config.level(common.parameter));
            // Places are limited to the range that was tried; a parameter that was never active there has no range.
            if common.axis == Axis::Category || place.is_nan() || common.first > common.last {
                place
            } else {
                place.clamp(common.first, common.last)
            }
        };
        let own = Points::at(self.axes.len(), &[self.axes.iter().map(place).collect()]);
        self.process.mean(&self.process.factors(&own), own.point(0), &mut Vec::new())
    }
}

/// Returns the place of a level that may lie between two.
fn between(axis: Axis, parameter: &Parameter, level: f64) -> f64 {
    if level.is_nan() {
        return axis.place(parameter, None);
    }
    let low = level.floor() as u32;
    let (share, place) = (level - f64::from(low), |level| axis.place(parameter, Some(level)));
    if share > 0.0 { (1.0 - share) * place(low) + share * place(low + 1) } else { place(low) }
}
