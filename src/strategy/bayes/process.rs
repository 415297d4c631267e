//! The Gaussian process: what the values that are known say about those that are not.

use super::kernel::{Factor, Shape, factors, product};
use super::matrix::{Triangle, dot};
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
    shape: &'d Shape,
    factor: Triangle,
    weights: Vec<f64>,
    level: f64,
}

/// A value that is not known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Belief {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl<'d> Process<'d> {
    /// `None` where the points cannot be told apart, which noise that is not zero prevents.
    pub(super) fn new(data: &'d Data, axes: &'d [Axis], shape: &'d Shape) -> Option<Self> {
        let own = factors(shape, axes, &data.points, &data.points, false);
        let entry = |i: usize, j: usize| {
            let noise = if i == j { shape.noise + data.noise[i] } else { 0.0 };
            shape.variance * product(&own, data.points.point(i), data.points.point(j)) + noise
        };
        let factor = Triangle::symmetric(data.values.len(), entry).cholesky()?;
        let solved = |mut b: Vec<f64>| {
            factor.solve(&mut b);
            factor.solve_transposed(&mut b);
            b
        };
        let ones = solved(vec![1.0; data.values.len()]);
        let level = dot(&ones, &data.values) / (ones.iter().sum::<f64>() + LEVEL_PRECISION);
        let weights = solved(data.values.iter().map(|value| value - level).collect());
        Some(Self { data, axes, shape, factor, weights, level })
    }

    /// Prepares for the points of a set.
    pub(super) fn factors(&self, others: &Points) -> Vec<Factor> {
        factors(self.shape, self.axes, &self.data.points, others, false)
    }

    /// How the values of all data go along with that of a point, and the mean there.
    pub(super) fn mean(&self, factors: &[Factor], point: &[u32], along: &mut Vec<f64>) -> f64 {
        along.clear();
        let known = 0..self.data.values.len();
        along.extend(known.map(|at| self.shape.variance * product(factors, self.data.points.point(at), point)));
        self.level + dot(along, &self.weights)
    }

    /// A deviation that the true one does not exceed, quickly: what the value that goes along most tells alone.
    pub(super) fn widest(&self, along: &[f64]) -> f64 {
        let mut most = 0.0_f64;
        for (at, &along) in along.iter().enumerate() {
            most = most.max(along * along / (self.shape.variance + self.shape.noise + self.data.noise[at]));
        }
        (self.shape.variance - most).max(SMALLEST).sqrt()
    }

    /// The deviation at a point, from how the data go along with it.
    pub(super) fn deviation(&self, along: &mut [f64]) -> f64 {
        self.factor.solve(along);
        (self.shape.variance - dot(along, along)).max(SMALLEST).sqrt()
    }

    /// What is expected at a point.
    pub(super) fn belief(&self, factors: &[Factor], point: &[u32]) -> Belief {
        let mut along = Vec::new();
        let mean = self.mean(factors, point, &mut along);
        Belief { mean, deviation: self.deviation(&mut along) }
    }
}

/// The smallest variance that is told from rounding.
const SMALLEST: f64 = 1e-12;
