//! Fits the kernel's shape to the history by maximum posterior density.

use std::cell::RefCell;

use argmin::core::{CostFunction, Error, Executor, Gradient};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;
use libm::{exp, log as ln};

use super::kernel::{Pairs, Shape};
use super::matrix::{Triangle, dot};
use super::points::Axis;
use super::process::{Data, LEVEL_PRECISION};

struct Prior {
    mean: f64,
    deviation: f64,
}

impl Prior {
    /// Returns its contribution to the cost, and the derivative of that contribution.
    fn cost(&self, x: f64) -> (f64, f64) {
        let z = (x - self.mean) / self.deviation;
        (0.5 * z * z, z / self.deviation)
    }
}

/// The prior for lengths, whose mean is ln 1.2 in widths of the axis. With shorter lengths a process learns nothing from few
/// trials; with longer lengths it sees a cliff too late. A deviation of 0.8 kept lengths too long: the best found after 40 probes
/// was farther from the table's best.
const LENGTH: Prior = Prior { mean: 0.2, deviation: 1.0 };
/// The priors for the variance of standardised values, and of the residuals of a model (mean: ln 0.6).
const VARIANCE: Prior = Prior { mean: 0.0, deviation: 1.0 };
const VARIANCE_LEFT: Prior = Prior { mean: -0.5, deviation: 1.0 };
/// The prior for the variance of noise beyond what intervals show (mean: ln 0.0025).
const NOISE: Prior = Prior { mean: -6.0, deviation: 1.5 };

/// The most evaluations in a fit from each start, because the line search of `argmin` has no limit of its own. A round
/// number.
const EVALUATIONS: usize = 25;
const ITERATIONS: u64 = 25;
const NOWHERE: f64 = 1e10;

/// A shape with the negative logarithm of its posterior density.
pub(super) struct Fitted {
    pub(super) shape: Shape,
    pub(super) cost: f64,
}

/// Returns the shape that the priors make most likely for the residuals of a model.
pub(super) fn unfitted(axes: &[Axis]) -> Shape {
    shape(&start(axes, &VARIANCE_LEFT))
}

fn start(axes: &[Axis], variance: &Prior) -> Vec<f64> {
    [vec![LENGTH.mean; axes.len()], vec![variance.mean, NOISE.mean]].concat()
}

/// Returns the most likely shape for values, or for the residuals of a model; if that fails, the shape of the priors.
pub(super) fn fit(data: &Data, axes: &[Axis], is_left: bool) -> Fitted {
    let variance = if is_left { &VARIANCE_LEFT } else { &VARIANCE };
    let start = start(axes, variance);
    // Dividing by the slope at the start gives the first step a length of one, the scale of the priors.
    let pairs = Pairs::of(axes, &data.points);
    let known = RefCell::new(Known::default());
    let mut likelihood = Likelihood { data, axes, pairs, variance, unit: 1.0, known };
    if let Some((_, slope)) = likelihood.evaluate(&start) {
        likelihood.unit = dot(&slope, &slope).sqrt().max(1.0);
    }
    likelihood.descend(&start);
    let unit = likelihood.unit;
    let (parameters, cost) = likelihood.known.into_inner().best.unwrap_or((start, NOWHERE));
    Fitted { shape: shape(&parameters), cost: cost * unit }
}

fn shape(parameters: &[f64]) -> Shape {
    let axes = parameters.len() - 2;
    Shape { lengths: parameters[..axes].to_vec(), variance: exp(parameters[axes]), noise: exp(parameters[axes + 1]) }
}

struct Likelihood<'d> {
    data: &'d Data,
    axes: &'d [Axis],
    pairs: Pairs<'d>,
    variance: &'d Prior,
    /// The unit by which cost and slope are divided.
    unit: f64,
    known: RefCell<Known>,
}

/// The last result: the optimiser asks for cost and slope separately, at the same place.
#[derive(Default)]
struct Known {
    evaluations: usize,
    last: Option<(Vec<f64>, f64, Vec<f64>)>,
    best: Option<(Vec<f64>, f64)>,
}

impl CostFunction for &Likelihood<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, parameters: &Vec<f64>) -> Result<f64, Error> {
        self.at(parameters).map(|(cost, _)| cost)
    }
}

impl Gradient for &Likelihood<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, parameters: &Vec<f64>) -> Result<Vec<f64>, Error> {
        self.at(parameters).map(|(_, slope)| slope)
    }
}

impl Likelihood<'_> {
    /// Optimises from one start. The best shape is kept, so it does not matter how the optimisation ends.
    fn descend(&self, start: &[f64]) {
        if let Ok(solver) = LBFGS::new(MoreThuenteLineSearch::new(), 7)
            .with_tolerance_grad(1e-4)
            .and_then(|solver| solver.with_tolerance_cost(1e-8))
        {
            let configure = |state: argmin::core::IterState<_, _, (), (), (), f64>| {
                state.param(start.to_vec()).max_iters(ITERATIONS)
            };
            let _ = Executor::new(self, solver).configure(configure).timer(false).run();
        }
    }

    /// Returns cost and slope; an error once the evaluations of a start are used up.
    fn at(&self, parameters: &[f64]) -> Result<(f64, Vec<f64>), Error> {
        let mut known = self.known.borrow_mut();
        if let Some((at, cost, slope)) = &known.last
            && at == parameters
        {
            return Ok((*cost, slope.clone()));
        }
        known.evaluations += 1;
        if known.evaluations > EVALUATIONS {
            return Err(Error::msg("the work for one start is done"));
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
        let tables = self.pairs.tables(&shape);
        let alike = self.pairs.covariances(&shape, &tables);
        let diagonal: Vec<f64> = self.data.noise.iter().map(|noise| shape.variance + shape.noise + noise).collect();
        let factor = Triangle::from_parts(&diagonal, &alike).cholesky()?;
        let inverse = factor.inverse();
        let (weights, mut cost) = self.level_and_weights(&factor);
        let mut slope = vec![0.0; parameters.len()];
        // The derivative of the cost by each entry of the covariance; an entry off the diagonal stands for two.
        let mut pulls = alike;
        let mut pairs = pulls.iter_mut();
        for i in 0..size {
            cost += ln(factor.row(i)[i]);
            let row = inverse.row(i);
            for (j, pair) in pairs.by_ref().take(i).enumerate() {
                *pair *= row[j] - weights[i] * weights[j];
            }
            let own = 0.5 * (row[i] - weights[i] * weights[i]);
            slope[axes] += own * shape.variance;
            slope[axes + 1] += own * shape.noise;
        }
        slope[axes] += pulls.iter().sum::<f64>();
        for (axis, table) in tables.iter().enumerate() {
            slope[axis] += self.pairs.slope(axis, table, &pulls);
        }
        let priors = std::iter::repeat_n(&LENGTH, axes).chain([self.variance, &NOISE]);
        for (prior, (parameter, slope)) in priors.zip(parameters.iter().zip(&mut slope)) {
            let (own, by) = prior.cost(*parameter);
            cost += own;
            *slope += by;
        }
        slope.iter_mut().for_each(|slope| *slope /= self.unit);
        (cost.is_finite() && slope.iter().all(|slope| slope.is_finite())).then_some((cost / self.unit, slope))
    }

    /// Returns the weights of the values around their most likely level, and the cost of both.
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
    use crate::model::{Config, Parameter, Space, Walk};
    use crate::search::strategy::bayes::points::{Points, axes};

    fn data(space: &Space, value: impl Fn(&Config) -> f64) -> Data {
        let configs: Vec<Config> = Walk::new(space).step_by(7).take(30).collect();
        Data::exact(Points::of(space, &axes(space), &configs), configs.iter().map(value).collect())
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
        let pairs = Pairs::of(&axes, &data.points);
        let known = RefCell::default();
        let likelihood = Likelihood { data: &data, axes: &axes, pairs, variance: &VARIANCE, unit: 1.0, known };
        let at = [-0.5, 0.2, -1.0, 0.3, -4.0];
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
