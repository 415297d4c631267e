//! The Gaussian process: predicts unknown values from known values.

use super::kernel::{Factor, Pairs, Shape, factors};
use super::matrix::{Triangle, dot, sum};
use super::points::{Axis, Points};
use super::scale::Scale;
use crate::model::{Space, Trial};

#[derive(Debug, Clone)]
pub(super) struct Data {
    pub(super) points: Points,
    pub(super) values: Vec<f64>,
    /// The variance of each value's own noise.
    pub(super) noise: Vec<f64>,
}

impl Data {
    pub(super) fn exact(points: Points, values: Vec<f64>) -> Self {
        Self { points, noise: vec![0.0; values.len()], values }
    }
}

/// The history, as the means are fitted to it.
pub(super) struct History<'h> {
    pub(super) space: &'h Space,
    pub(super) axes: &'h [Axis],
    pub(super) scale: &'h Scale,
    pub(super) data: Data,
    pub(super) scored: &'h [&'h (&'h Trial, f64)],
    /// True if this proposal learns from a study that is in doubt.
    pub(super) is_its_turn: bool,
}

impl History<'_> {
    /// Returns the values, with low values not compressed.
    pub(super) fn whole(&self) -> Vec<f64> {
        self.scored.iter().map(|(_, score)| self.scale.whole_value(*score)).collect()
    }
}

/// The prior precision of the level that all values share. Values are standardised, so the level lies within a few
/// units of zero.
pub(super) const LEVEL_PRECISION: f64 = 0.3;

/// A process that was conditioned on its data.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) axes: Vec<Axis>,
    shape: Shape,
    points: Points,
    factor: Triangle,
    /// The solution of L x = 1.
    ones: Vec<f64>,
    weights: Vec<f64>,
    level: f64,
    /// The inverse of the variance of each known value.
    certainty: Vec<f64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Belief {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Process {
    /// Makes the process, with more noise if points cannot be distinguished otherwise; `None` if no noise helps.
    pub(super) fn new(data: &Data, axes: &[Axis], shape: &Shape) -> Option<Self> {
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

    fn with(data: &Data, axes: &[Axis], shape: &Shape) -> Option<Self> {
        let pairs = Pairs::of(axes, &data.points);
        let alike = pairs.covariances(shape, &pairs.tables(shape));
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
        let (axes, shape, points) = (axes.to_vec(), shape.clone(), data.points.clone());
        is_sound.then_some(Self { axes, shape, points, factor, ones, weights, level, certainty })
    }

    /// Returns the negative logarithm of the density of other values at the same points, up to a constant.
    pub(super) fn surprise(&self, values: &[f64]) -> f64 {
        let ones = &self.ones;
        let mut solved = values.to_vec();
        self.factor.solve(&mut solved);
        let level = dot(ones, &solved) / (dot(ones, ones) + LEVEL_PRECISION);
        let square: f64 = solved.iter().zip(ones).map(|(value, one)| (value - level * one).powi(2)).sum();
        0.5 * square + 0.5 * LEVEL_PRECISION * level * level
    }

    pub(super) fn factors(&self, others: &Points) -> Vec<Factor> {
        factors(&self.axes, &self.shape, &self.points, others)
    }

    /// Computes the covariances of all data with a point, and returns the mean there.
    pub(super) fn mean(&self, factors: &[Factor], point: &[u32], along: &mut Vec<f64>) -> f64 {
        along.clear();
        along.resize(self.weights.len(), self.shape.variance);
        for (factor, &place) in factors.iter().zip(point) {
            for (along, factor) in along.iter_mut().zip(factor.column(place)) {
                *along *= factor;
            }
        }
        self.level + dot(along, &self.weights)
    }

    pub(super) fn belief(&self, factors: &[Factor], point: &[u32]) -> Belief {
        let mut along = Vec::new();
        let mean = self.mean(factors, point, &mut along);
        self.factor.solve(&mut along);
        let variance = (self.shape.variance - dot(&along, &along)).max(SMALLEST);
        Belief { mean, deviation: variance.sqrt() }
    }

    pub(super) fn sweep<'s>(&'s self, factors: &'s [Factor]) -> Sweep<'s> {
        let products = vec![vec![self.shape.variance; self.weights.len()]; factors.len().max(1)];
        Sweep { process: self, factors, products, last: Vec::new() }
    }
}

/// Computes means and bounds for one point after the other. Neighbouring points share partial products over their common axes. So
/// points in the order of a walk need little more than one multiplication for each known value.
pub(super) struct Sweep<'s> {
    process: &'s Process,
    factors: &'s [Factor],
    /// The products over the axes before each axis.
    products: Vec<Vec<f64>>,
    last: Vec<u32>,
}

impl Sweep<'_> {
    /// Returns the mean at a point, and a bound of the deviation from the single value that is most correlated.
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

impl Process {
    /// Takes covariances as products of two factors; returns their weighted sum, and the most that one value reveals.
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

/// The smallest variance that is distinguishable from rounding.
const SMALLEST: f64 = 1e-12;

/// Predicts how likely a config is to run at all. A failure has no score; it is only distinguished from success.
pub(super) struct Feasibility {
    pub(super) process: Process,
    /// The expected share of configs that run, far from all known points.
    prior: f64,
}

/// The smallest probability that any config gets, since a model of failures is never certain. A round number.
const LEAST: f64 = 0.02;

impl Feasibility {
    /// Makes the model from points that ran and points that did not; `None` if all ran.
    pub(super) fn of(points: Points, ran: &[bool], axes: &[Axis]) -> Option<Self> {
        let failed = ran.iter().filter(|ran| !**ran).count();
        if failed == 0 {
            return None;
        }
        let prior = (ran.len() - failed + 1) as f64 / (ran.len() + 1) as f64;
        let data = Data::exact(points, ran.iter().map(|&ran| f64::from(u8::from(ran)) - prior).collect());
        // The lengths are a whole axis: the limits of memory and of kernels run across parameters.
        let shape = Shape { lengths: vec![0.0; axes.len()], variance: 0.25, noise: 0.02 };
        Some(Self { process: Process::new(&data, axes, &shape)?, prior })
    }

    /// Returns the probability that a point runs, from the process's mean there.
    pub(super) fn chance_of(&self, mean: f64) -> f64 {
        (mean + self.prior).clamp(LEAST, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Config, Expression, Parameter, Permutation, Walk};
    use crate::search::strategy::bayes::points::axes;
    use crate::search::tests::numbers;

    /// Returns numbers from 0 to 1 that look random.
    fn chance(seed: u64) -> impl FnMut() -> f64 {
        let order = Permutation::new(1 << 32, seed);
        let mut place = 0;
        move || {
            place += 1;
            order.at(place).unwrap() as f64 / (1_u64 << 32) as f64
        }
    }

    fn conditional(seed: u64) -> Space {
        let mut chance = chance(seed);
        let parameters = (0..5_u32).map(|at| {
            let parameter = if chance() < 0.3 {
                Parameter::values(format!("p{at}"), ["x", "y", "z"])
            } else {
                Parameter::range(format!("p{at}"), 0, 2 + (chance() * 3.0) as i64, 1)
            };
            let other = (chance() * f64::from(at)) as u32;
            let condition = format!("p{other} != {}", if chance() < 0.5 { "0" } else { "'x'" });
            let depends = at > 0 && chance() < 0.7;
            if depends { parameter.when(Expression::parse(&condition).unwrap()) } else { parameter }
        });
        Space::new(parameters).unwrap()
    }

    fn data(space: &Space, configs: &[Config], seed: u64) -> Data {
        let mut chance = chance(seed);
        let values = configs.iter().map(|_| 2.0 * chance() - 1.0).collect();
        Data::exact(Points::of(space, &axes(space), configs), values)
    }

    #[test]
    fn covariances_are_positive_definite_where_parameters_are_not_active() {
        for seed in 0..40 {
            let space = conditional(seed);
            let mut configs: Vec<Config> = Walk::new(&space).collect();
            configs.truncate(200);
            let (axes, data, mut chance) = (axes(&space), data(&space, &configs, seed), chance(seed + 99));
            for _ in 0..3 {
                let lengths = axes.iter().map(|_| 5.0 * chance() - 1.0).collect();
                let shape = Shape { lengths, variance: 1.0, noise: 1e-9 };
                assert!(Process::with(&data, &axes, &shape).is_some(), "{seed}: {shape:?}");
            }
        }
    }

    #[test]
    fn a_sweep_finds_what_each_point_alone_would() {
        let space = conditional(3);
        let configs: Vec<Config> = Walk::new(&space).collect();
        let some: Vec<Config> = configs.iter().step_by(5).take(37).cloned().collect();
        let (axes, data) = (axes(&space), data(&space, &some, 1));
        let shape = Shape { lengths: vec![-0.5; axes.len()], variance: 1.3, noise: 0.01 };
        let process = Process::new(&data, &axes, &shape).unwrap();
        let points = Points::of(&space, &axes, &configs);
        let factors = process.factors(&points);
        let mut sweep = process.sweep(&factors);
        for at in (0..points.len()).chain((0..points.len()).rev()) {
            let (rough, exact) = (sweep.at(points.point(at)), process.belief(&factors, points.point(at)));
            assert!((rough.mean - exact.mean).abs() < 1e-9, "{at}");
            assert!(rough.deviation >= exact.deviation - 1e-9, "{at}");
        }
    }

    #[test]
    fn what_cannot_be_told_apart_gets_noise_and_what_is_no_number_no_process() {
        let space = numbers(0, 99);
        let configs: Vec<Config> = Walk::new(&space).collect();
        let (axes, mut data) = (axes(&space), data(&space, &configs, 1));
        let shape = Shape { lengths: vec![9.0], variance: 1.0, noise: 0.0 };
        assert!(Process::with(&data, &axes, &shape).is_none());
        assert!(Process::new(&data, &axes, &shape).is_some());
        data.values[3] = f64::NAN;
        assert!(Process::new(&data, &axes, &shape).is_none());
    }
}
