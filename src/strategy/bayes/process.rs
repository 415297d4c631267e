//! The Gaussian process: what the values that are known say about those that are not.

use super::kernel::{Factor, Pairs, Shape, factors};
use super::matrix::{Triangle, dot, sum};
use super::points::{Axis, Points};

/// What is known: points with standardised values.
#[derive(Debug, Clone)]
pub(super) struct Data {
    pub(super) points: Points,
    pub(super) values: Vec<f64>,
    /// The variance of each value's own noise.
    pub(super) noise: Vec<f64>,
}

/// The precision of the level that all values have in common, before anything is known: values are standardised, so it
/// lies within a few units of zero.
pub(super) const LEVEL_PRECISION: f64 = 0.3;

/// A process that knows its data.
pub(super) struct Process<'d> {
    data: &'d Data,
    axes: &'d [Axis],
    shape: Shape,
    factor: Triangle,
    /// The solution of L x = 1.
    ones: Vec<f64>,
    weights: Vec<f64>,
    level: f64,
    /// One over the variance of each value that is known.
    certainty: Vec<f64>,
}

/// A value that is not known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Belief {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl<'d> Process<'d> {
    /// With more noise where it takes that to tell the points apart; `None` where no noise helps, as with values that are
    /// not numbers.
    pub(super) fn new(data: &'d Data, axes: &'d [Axis], shape: &Shape) -> Option<Self> {
        const TRIES: usize = 4;
        let mut shape = shape.clone();
        for _ in 0..TRIES {
            if let Some(process) = Self::with(data, axes, &shape) {
                return Some(process);
            }
            shape.noise = (100.0 * shape.noise).max(1e-8 * shape.variance);
        }
        None
    }

    fn with(data: &'d Data, axes: &'d [Axis], shape: &Shape) -> Option<Self> {
        let pairs = Pairs::of(axes, &data.points);
        let alike = pairs.covariances(shape, &pairs.tables(shape, false));
        let variances: Vec<f64> = data.noise.iter().map(|noise| shape.variance + shape.noise + noise).collect();
        let factor = Triangle::from_parts(&variances, &alike).cholesky()?;
        let mut ones = vec![1.0; data.values.len()];
        factor.solve(&mut ones);
        let mut solved = data.values.clone();
        factor.solve(&mut solved);
        let level = dot(&ones, &solved) / (dot(&ones, &ones) + LEVEL_PRECISION);
        let mut weights: Vec<f64> = solved.iter().zip(&ones).map(|(value, one)| value - level * one).collect();
        factor.solve_transposed(&mut weights);
        let certainty = variances.iter().map(|variance| 1.0 / variance).collect();
        let is_sound = level.is_finite() && weights.iter().all(|weight| weight.is_finite());
        is_sound.then_some(Self { data, axes, shape: shape.clone(), factor, ones, weights, level, certainty })
    }

    /// How little the process, with these values instead of its own, expects them: the negative logarithm of their density,
    /// up to a constant.
    pub(super) fn surprise(&self, values: &[f64]) -> f64 {
        let ones = &self.ones;
        let mut solved = values.to_vec();
        self.factor.solve(&mut solved);
        let level = dot(ones, &solved) / (dot(ones, ones) + LEVEL_PRECISION);
        let square: f64 = solved.iter().zip(ones).map(|(value, one)| (value - level * one).powi(2)).sum();
        0.5 * square + 0.5 * LEVEL_PRECISION * level * level
    }

    /// How many values are known.
    pub(super) fn len(&self) -> usize {
        self.data.values.len()
    }

    /// Prepares for the points of a set.
    pub(super) fn factors(&self, others: &Points) -> Vec<Factor> {
        factors(&self.shape, self.axes, &self.data.points, others)
    }

    /// How the values of all data go along with that of a point, and the mean there.
    pub(super) fn mean(&self, factors: &[Factor], point: &[u32], along: &mut Vec<f64>) -> f64 {
        along.clear();
        along.resize(self.len(), self.shape.variance);
        for (factor, &place) in factors.iter().zip(point) {
            for (along, factor) in along.iter_mut().zip(factor.column(place)) {
                *along *= factor;
            }
        }
        self.level + dot(along, &self.weights)
    }

    /// A deviation that the true one does not exceed: what the first `rows` of the data leave. It replaces as many numbers
    /// of `along`, and is the true one where those are all.
    pub(super) fn deviation(&self, rows: usize, along: &mut [f64]) -> f64 {
        self.factor.solve_first(rows, along);
        let told = &along[..rows.min(along.len())];
        (self.shape.variance - dot(told, told)).max(SMALLEST).sqrt()
    }

    /// What is expected at a point.
    pub(super) fn belief(&self, factors: &[Factor], point: &[u32]) -> Belief {
        let mut along = Vec::new();
        let mean = self.mean(factors, point, &mut along);
        Belief { mean, deviation: self.deviation(self.len(), &mut along) }
    }

    /// Goes over the points of a set in their order.
    pub(super) fn sweep<'s>(&'s self, factors: &'s [Factor]) -> Sweep<'s, 'd> {
        let products = vec![vec![self.shape.variance; self.len()]; factors.len().max(1)];
        Sweep { process: self, factors, products, last: Vec::new() }
    }
}

/// Means and bounds for one point after the other. What neighbours have in common of the product over the axes is kept, so
/// that points in the order of a walk take little more than one multiplication for each value that is known.
pub(super) struct Sweep<'s, 'd> {
    process: &'s Process<'d>,
    factors: &'s [Factor],
    /// The products over the axes before each one.
    products: Vec<Vec<f64>>,
    last: Vec<u32>,
}

impl Sweep<'_, '_> {
    /// The mean at a point, and a deviation that the true one does not exceed: what the value that goes along most tells
    /// alone.
    pub(super) fn at(&mut self, point: &[u32]) -> Belief {
        let is_shared = |(a, b): &(&u32, &u32)| a == b;
        let shared = point.iter().zip(&self.last).take_while(is_shared).count();
        self.last.clear();
        self.last.extend_from_slice(point);
        let last = self.factors.len().saturating_sub(1);
        for axis in shared..last {
            let (before, after) = self.products.split_at_mut(axis + 1);
            let factor = self.factors[axis].column(point[axis]);
            for (product, (before, factor)) in after[0].iter_mut().zip(before[axis].iter().zip(factor)) {
                *product = before * factor;
            }
        }
        let before = &self.products[last];
        let (sum, most) = match self.factors.last() {
            Some(factor) => self.process.summed(before, factor.column(point[last])),
            None => self.process.summed(before, &vec![1.0; before.len()]),
        };
        let variance = (self.process.shape.variance - most).max(SMALLEST);
        Belief { mean: self.process.level + sum, deviation: variance.sqrt() }
    }
}

impl Process<'_> {
    /// With what goes along as a product of two: its sum by the weights, and the most that one value tells.
    fn summed(&self, before: &[f64], factor: &[f64]) -> (f64, f64) {
        const LANES: usize = 8;
        let (mut sums, mut most) = ([0.0_f64; LANES], [0.0_f64; LANES]);
        let parts = before.chunks(LANES).zip(factor.chunks(LANES));
        let known = self.weights.chunks(LANES).zip(self.certainty.chunks(LANES));
        for ((before, factor), (weights, certainty)) in parts.zip(known) {
            let mut add = |lane: usize| {
                let along = before[lane] * factor[lane];
                sums[lane] += along * weights[lane];
                let told = along * along * certainty[lane];
                most[lane] = if told > most[lane] { told } else { most[lane] };
            };
            if before.len() == LANES && factor.len() == LANES && weights.len() == LANES && certainty.len() == LANES {
                (0..LANES).for_each(add);
            } else {
                (0..before.len()).for_each(&mut add);
            }
        }
        (sum(sums), most.into_iter().fold(0.0, f64::max))
    }
}

/// The smallest variance that is told from rounding.
const SMALLEST: f64 = 1e-12;
