//! Predicts a config's score from an earlier study: a Gaussian process over the common parameters.
//!
//! It uses only the shape, not the level, since another device or model has another level. Outside the settings that the study
//! tried, it predicts the same as at the edge. Failures are ignored, since a config that did not run there may run here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::fit;
use super::kernel::{Decays, Shape, factors};
use super::matrix::dot;
use super::points::{Axis, Points, axes};
use super::process::{Data, Process};
use super::scale::Scale;
use crate::model::{Config, Objective, Parameter, Space};
use crate::search::strategy::earlier::{Earlier, spread};

/// The most configs of a study that the kernel is fitted to: the work grows with the cube of their number.
const MOST_FITTED: usize = 64;
/// The most configs whose means are kept: a bound on memory.
const MOST_KEPT: usize = 200_000;

/// A process that was fitted to a study.
#[derive(Debug)]
pub(super) struct Lesson {
    /// For each common parameter its place in the space, its axis, and the range that was tried.
    axes: Vec<Common>,
    points: Points,
    decays: Vec<Decays<'static>>,
    shape: Shape,
    weights: Vec<f64>,
    level: f64,
    /// The standard deviation of the study's scores, as logarithms; `None` if they have no logarithm.
    spread: Option<f64>,
    /// The means that were computed so far.
    means: Mutex<HashMap<Config, f64>>,
}

#[derive(Debug)]
struct Common {
    parameter: usize,
    axis: Axis,
    first: f64,
    last: f64,
}

impl Lesson {
    /// Fits a process to a study; `None` where its configs do not differ.
    pub(super) fn of(space: &Space, objective: &Objective, earlier: &Earlier) -> Option<Self> {
        let all = axes(space);
        let known = earlier.points();
        let scores: Vec<f64> = known.iter().map(|point| point.score).collect();
        /// The expected standard deviation of throughputs, as logarithms, among the configs of a space; see `model.rs`.
        const EXPECTED: f64 = 0.4;
        let scale = Scale::of(objective, &scores, EXPECTED, true);
        let place = |common: usize, level: f64| {
            let at = earlier.parameters()[common];
            between(all[at], &space.parameters()[at], level)
        };
        let row = |levels: &[f64]| levels.iter().enumerate().map(|(common, &level)| place(common, level)).collect();
        let rows: Vec<Vec<f64>> = known.iter().map(|point| row(&point.levels)).collect();
        let common = |(common, &parameter): (usize, &usize)| {
            let tried = || rows.iter().map(|row| row[common]).filter(|place| !place.is_nan());
            let (first, last) = (tried().fold(f64::INFINITY, f64::min), tried().fold(f64::NEG_INFINITY, f64::max));
            Common { parameter, axis: all[parameter], first, last }
        };
        let common: Vec<Common> = earlier.parameters().iter().enumerate().map(common).collect();
        let axes: Vec<Axis> = common.iter().map(|common| common.axis).collect();
        let data = |of: &[usize]| Data {
            points: Points::at(axes.len(), &of.iter().map(|&at| rows[at].clone()).collect::<Vec<_>>()),
            values: of.iter().map(|&at| scale.value(scores[at])).collect(),
            noise: vec![0.0; of.len()],
        };
        let shape = fit::fit(&data(&spread(rows.len(), MOST_FITTED)), &axes, false).shape;
        let data = data(&(0..rows.len()).collect::<Vec<_>>());
        let (weights, level) = {
            let process = Process::new(&data, &axes, &shape)?;
            let (weights, level) = process.weights();
            (weights.to_vec(), level)
        };
        let spread = scale.is_of_ratios().then(|| scale.deviation());
        let decays = Decays::of_all(&shape, &axes, &data.points).into_iter().map(Decays::into_owned).collect();
        let (points, means) = (data.points, Mutex::default());
        Some(Self { axes: common, points, decays, shape, weights, level, spread, means })
    }

    /// Returns the standard deviation of the study's scores, as logarithms; `None` if they have no logarithm.
    pub(super) fn spread(&self) -> Option<f64> {
        self.spread
    }

    /// Returns the score that the study predicts for a config, up to a constant, in the study's standard units.
    pub(super) fn mean(&self, space: &Space, config: &Config) -> f64 {
        let known = self.means.lock().unwrap_or_else(PoisonError::into_inner).get(config).copied();
        if let Some(mean) = known {
            return mean;
        }
        let mean = self.expected(space, config);
        let mut means = self.means.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut along = vec![self.shape.variance; self.points.len()];
        for (factor, &place) in factors(&self.decays, &self.points, &own).iter().zip(own.point(0)) {
            along.iter_mut().zip(factor.column(place)).for_each(|(along, factor)| *along *= factor);
        }
        self.level + dot(&along, &self.weights)
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
