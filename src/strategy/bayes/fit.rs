//! Fitting the kernel to the history: its most likely shape, priors considered.

use std::cell::RefCell;

use argmin::core::{CostFunction, Error, Executor, Gradient};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;

use super::kernel::{Shape, factors, product};
use super::matrix::{Triangle, dot};
use super::normal::{exp, ln};
use super::points::Axis;
use super::process::{Data, LEVEL_PRECISION};

/// A normal prior on a logarithm (of a share: on its logit).
struct Prior {
    mean: f64,
    deviation: f64,
}

impl Prior {
    /// Its part of the cost, and the slope of it.
    fn cost(&self, x: f64) -> (f64, f64) {
        let z = (x - self.mean) / self.deviation;
        (0.5 * z * z, z / self.deviation)
    }
}

/// Lengths in widths of the axis: ln 0.7. Shorter ones make a process that learns nothing from few trials.
const LENGTH: Prior = Prior { mean: -0.36, deviation: 0.8 };
/// The logit of the interaction share: 0.88.
const SHARE: Prior = Prior { mean: 2.0, deviation: 1.0 };
/// The variance of standardised values, and of what a model of them leaves: ln 0.6.
const VARIANCE: Prior = Prior { mean: 0.0, deviation: 1.0 };
const VARIANCE_LEFT: Prior = Prior { mean: -3.0, deviation: 1.5 };
/// The variance of noise beside what intervals tell: ln 0.0025.
const NOISE: Prior = Prior { mean: -6.0, deviation: 1.5 };

/// Evaluations that one fit may take: the line search of `argmin` has no bound of its own.
const EVALUATIONS: usize = 40;
const ITERATIONS: u64 = 25;
/// The cost of what has no likelihood.
const NOWHERE: f64 = 1e10;

/// A shape with the negative logarithm of its posterior density.
pub(super) struct Fitted {
    pub(super) shape: Shape,
    pub(super) cost: f64,
}

fn start(axes: &[Axis], variance: &Prior) -> Vec<f64> {
    [vec![LENGTH.mean; axes.len()], vec![SHARE.mean, variance.mean, NOISE.mean]].concat()
}

/// The most likely shape of values, or of what a model leaves of them; the priors' own where the search for it fails.
pub(super) fn fit(data: &Data, axes: &[Axis], is_left: bool) -> Fitted {
    let variance = if is_left { &VARIANCE_LEFT } else { &VARIANCE };
    let start = start(axes, variance);
    // Divided by the slope at the start, the first step of the search is of length one, which priors are made for.
    let mut likelihood = Likelihood { data, axes, variance, unit: 1.0, known: RefCell::new(Known::default()) };
    if let Some((_, slope)) = likelihood.evaluate(&start) {
        likelihood.unit = dot(&slope, &slope).sqrt().max(1.0);
    }
    let problem = Bounded(&likelihood);
    if let Ok(solver) = LBFGS::new(MoreThuenteLineSearch::new(), 7)
        .with_tolerance_grad(1e-4)
        .and_then(|solver| solver.with_tolerance_cost(1e-8))
    {
        // What was found until a fit ends is kept, so how it ends does not matter.
        let configure =
            |state: argmin::core::IterState<_, _, (), (), (), f64>| state.param(start.clone()).max_iters(ITERATIONS);
        let _ = Executor::new(problem, solver).configure(configure).timer(false).run();
    }
    let unit = likelihood.unit;
    let (parameters, cost) = likelihood.known.into_inner().best.unwrap_or((start, NOWHERE));
    Fitted { shape: shape(&parameters), cost: cost * unit }
}

fn shape(parameters: &[f64]) -> Shape {
    let axes = parameters.len() - 3;
    Shape {
        lengths: parameters[..axes].to_vec(),
        share: 1.0 / (1.0 + exp(-parameters[axes])),
        variance: exp(parameters[axes + 1]),
        noise: exp(parameters[axes + 2]),
    }
}

/// The negative logarithm of the posterior density of a shape.
struct Likelihood<'d> {
    data: &'d Data,
    axes: &'d [Axis],
    variance: &'d Prior,
    /// What cost and slope are divided by.
    unit: f64,
    known: RefCell<Known>,
}

/// What was computed: cost and slope are asked for one after the other at the same place.
#[derive(Default)]
struct Known {
    evaluations: usize,
    last: Option<(Vec<f64>, f64, Vec<f64>)>,
    best: Option<(Vec<f64>, f64)>,
}

struct Bounded<'l, 'd>(&'l Likelihood<'d>);

impl CostFunction for Bounded<'_, '_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, parameters: &Vec<f64>) -> Result<f64, Error> {
        self.0.at(parameters).map(|(cost, _)| cost)
    }
}

impl Gradient for Bounded<'_, '_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, parameters: &Vec<f64>) -> Result<Vec<f64>, Error> {
        self.0.at(parameters).map(|(_, slope)| slope)
    }
}

impl Likelihood<'_> {
    /// Cost and slope; an error when the work is done that a fit may take.
    fn at(&self, parameters: &[f64]) -> Result<(f64, Vec<f64>), Error> {
        let mut known = self.known.borrow_mut();
        if let Some((at, cost, slope)) = &known.last
            && at == parameters
        {
            return Ok((*cost, slope.clone()));
        }
        known.evaluations += 1;
        if known.evaluations > EVALUATIONS {
            return Err(Error::msg("the work for one fit is done"));
        }
        let (cost, slope) = self.evaluate(parameters).unwrap_or_else(|| (NOWHERE, vec![0.0; parameters.len()]));
        if known.best.as_ref().is_none_or(|(_, best)| cost < *best) {
            known.best = Some((parameters.to_vec(), cost));
        }
        known.last = Some((parameters.to_vec(), cost, slope.clone()));
        Ok((cost, slope))
    }

    fn evaluate(&self, parameters: &[f64]) -> Option<(f64, Vec<f64>)> {
        let (axes, size) = (self.axes.len(), self.data.values.len());
        let shape = shape(parameters);
        let points = &self.data.points;
        let factors = factors(&shape, self.axes, points, points, true);
        let alike =
            Triangle::symmetric(size, |i, j| shape.variance * product(&factors, points.point(i), points.point(j)));
        let noise = |i: usize| shape.noise + self.data.noise[i];
        let factor =
            Triangle::symmetric(size, |i, j| alike.row(i)[j] + if i == j { noise(i) } else { 0.0 }).cholesky()?;
        let inverse = factor.inverse();
        let (weights, mut cost) = self.level_and_weights(&factor);
        let mut slope = vec![0.0; parameters.len()];
        let share_slope = shape.share * (1.0 - shape.share);
        for i in 0..size {
            cost += ln(factor.row(i)[i]);
            for j in 0..=i {
                let twice = if i == j { 0.5 } else { 1.0 };
                let pull = (inverse.row(i)[j] - weights[i] * weights[j]) * twice;
                let own = pull * alike.row(i)[j];
                slope[axes + 1] += own;
                for (axis, factor) in factors.iter().enumerate() {
                    let at = factor.at(points.point(i)[axis], points.point(j)[axis]);
                    slope[axis] += own * factor.by_length[at];
                    slope[axes] += own * factor.by_share[at] * share_slope;
                }
                if i == j {
                    slope[axes + 2] += pull * shape.noise;
                }
            }
        }
        let priors = std::iter::repeat_n(&LENGTH, axes).chain([&SHARE, self.variance, &NOISE]);
        for (prior, (parameter, slope)) in priors.zip(parameters.iter().zip(&mut slope)) {
            let (own, by) = prior.cost(*parameter);
            cost += own;
            *slope += by;
        }
        slope.iter_mut().for_each(|slope| *slope /= self.unit);
        (cost.is_finite() && slope.iter().all(|slope| slope.is_finite())).then_some((cost / self.unit, slope))
    }

    /// The weights of the values around their most likely level, and the cost of both.
    fn level_and_weights(&self, factor: &Triangle) -> (Vec<f64>, f64) {
        let values = &self.data.values;
        let mut ones = vec![1.0; values.len()];
        factor.solve(&mut ones);
        factor.solve_transposed(&mut ones);
        let level = dot(&ones, values) / (ones.iter().sum::<f64>() + LEVEL_PRECISION);
        let around: Vec<f64> = values.iter().map(|value| value - level).collect();
        let mut weights = around.clone();
        factor.solve(&mut weights);
        factor.solve_transposed(&mut weights);
        let cost = 0.5 * dot(&around, &weights) + 0.5 * LEVEL_PRECISION * level * level;
        (weights, cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{Config, Parameter, Space, Walk};
    use crate::strategy::bayes::points::{Points, axes};

    fn data(space: &Space, value: impl Fn(&Config) -> f64) -> Data {
        let configs: Vec<Config> = Walk::new(space).step_by(7).take(30).collect();
        let points = Points::of(space, &axes(space), &configs);
        Data { points, values: configs.iter().map(value).collect(), noise: vec![0.0; configs.len()] }
    }

    fn space() -> Space {
        Space::new([
            Parameter::range("a", 0, 9, 1),
            Parameter::range("b", 0, 9, 1),
            Parameter::values("c", ["x", "y", "z"]),
        ])
        .unwrap()
    }

    fn level(config: &Config, at: usize) -> f64 {
        f64::from(config.level(at).unwrap())
    }

    #[test]
    fn the_slope_is_that_of_the_cost() {
        let space = space();
        let data = data(&space, |config| (level(config, 0) - 3.0) / 4.0 + level(config, 2) * 0.2);
        let axes = axes(&space);
        let likelihood =
            Likelihood { data: &data, axes: &axes, variance: &VARIANCE, unit: 1.0, known: RefCell::default() };
        let at = [-0.5, 0.2, -1.0, 0.7, 0.3, -4.0];
        let (_, slope) = likelihood.evaluate(&at).unwrap();
        for (place, slope) in slope.iter().enumerate() {
            let moved = |by: f64| {
                let mut there = at;
                there[place] += by;
                likelihood.evaluate(&there).unwrap().0
            };
            let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slope - expected).abs() < 1e-4 * expected.abs().max(1.0), "{place}: {slope}, not {expected}");
        }
    }

    #[test]
    fn a_parameter_without_effect_gets_the_longest_length() {
        let space = space();
        let data = data(&space, |config| (level(config, 0) * 0.9).sin());
        let lengths = fit(&data, &axes(&space), false).shape.lengths;
        assert!(lengths[0] < lengths[1] && lengths[0] < lengths[2], "{lengths:?}");
    }
}
