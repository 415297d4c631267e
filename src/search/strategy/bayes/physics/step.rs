//! The formula for how long a training step takes, with given coefficients.

use libm::{exp, log as ln};

use super::numbers::{Found, Unknown};
use crate::search::strategy::bayes::matrix::Triangle;

/// The positions of the formula's coefficients. After them stand the speeds of the precisions, and last the unit of
/// speeds.
pub(super) const HALF_BATCH: usize = 0;
pub(super) const LOADER: usize = 1;
pub(super) const CORES: usize = 2;
pub(super) const HOST: usize = 3;
pub(super) const BARRIER: usize = 4;
pub(super) const UPDATE: usize = 5;
pub(super) const DEVICES: usize = 6;
pub(super) const GROWTH: usize = 7;
pub(super) const MIXED: usize = 8;
pub(super) const THREADS: usize = 9;
pub(super) const POWER: usize = 10;
pub(super) const PREFETCH: usize = 11;
pub(super) const PRECISIONS: usize = 12;

/// The directions of derivatives: the first seven coefficients, and the linear part of the device's time.
const DIRECTIONS: usize = 8;
const LINEAR: usize = 7;

/// The properties of a config that determine a step. Logarithms are natural.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    /// The logarithm of the samples in a batch of the loader.
    pub(super) ln_batch: f64,
    /// The logarithm of the number of pieces in which the batch is computed.
    pub(super) ln_pieces: f64,
    /// The logarithm of the number of batches in an update of the weights.
    pub(super) ln_accumulation: f64,
    /// Loader workers; `None` if the config has no such parameter.
    pub(super) workers: Option<f64>,
    pub(super) ln_prefetch: f64,
    pub(super) ln_threads: f64,
    pub(super) ln_power: f64,
    pub(super) ln_devices: f64,
    /// Settings of precisions, as positions among the coefficients; full precision is not included.
    pub(super) precisions: [Option<u16>; MOST_PRECISIONS],
}

/// The most parameters that may be a precision.
pub(super) const MOST_PRECISIONS: usize = 3;

/// The coefficients, prepared for repeated use.
#[derive(Debug, Clone)]
pub(in crate::search::strategy::bayes) struct Numbers {
    raw: Vec<f64>,
    /// The logarithm of the batch from which growth is counted.
    middle: f64,
    launch: f64,
    mixed: f64,
    loader: f64,
    cores: f64,
    host: f64,
    update: f64,
    unit: f64,
    /// The covariance of the coefficients, row by row; empty if it is unknown.
    covariance: Vec<f64>,
    /// Alternative coefficients that the history allows, with their weights. The coefficients in `raw` have the remaining weight.
    pub(super) others: Vec<(Numbers, f64)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// The logarithm of samples per second, up to an unknown unit.
    pub(super) speed: f64,
    /// The share of the time that is spent waiting for data.
    pub(super) wait: f64,
}

impl Numbers {
    /// Takes the coefficients in the order of the unknowns, the unit of speeds last.
    pub(super) fn new(raw: &[f64], middle: f64) -> Self {
        Self {
            launch: exp(raw[HALF_BATCH]),
            mixed: exp(raw[MIXED]),
            loader: exp(raw[LOADER]),
            cores: exp(raw[CORES]),
            host: exp(raw[HOST]),
            update: exp(raw[UPDATE]),
            unit: raw.last().copied().unwrap_or(0.0),
            raw: raw.to_vec(),
            middle,
            covariance: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Makes them from the result of a fit, with its uncertainty.
    pub(super) fn found(found: Found, unknowns: &[Unknown], middle: f64, others: Vec<(Self, f64)>) -> Self {
        let covariance = found.precision.map_or_else(Vec::new, |factor| covariance(&factor, unknowns));
        Self { covariance, others, ..Self::new(&found.numbers, middle) }
    }

    pub(super) fn step(&self, asked: &Asked) -> Step {
        let (time, own) = self.time::<0>(asked);
        Step { speed: self.speed(asked, time.value), wait: wait(time, own) }
    }

    /// Computes a step with the derivatives of its speed and of its share of waiting.
    pub(super) fn followed(&self, asked: &Asked, speed: &mut [f64], waiting: &mut [f64]) -> Step {
        let (time, own) = self.time::<DIRECTIONS>(asked);
        speed.fill(0.0);
        self.follow(asked, &time, |at, slope| speed[at] = -slope);
        if let Some(unit) = speed.last_mut() {
            *unit = -1.0;
        }
        let computing = own.value / time.value;
        let mut difference = time;
        for (slope, own) in difference.slope.iter_mut().zip(&own.slope) {
            *slope = if computing < 1.0 { computing * (*slope - own) } else { 0.0 };
        }
        waiting.fill(0.0);
        self.follow(asked, &difference, |at, slope| waiting[at] = slope);
        // Loading ahead shifts the speed alone.
        waiting[PREFETCH] = 0.0;
        Step { speed: self.speed(asked, time.value), wait: wait(time, own) }
    }

    /// Passes on the derivatives of a time's logarithm along the coefficients.
    fn follow(&self, asked: &Asked, time: &Dual<DIRECTIONS>, mut each: impl FnMut(usize, f64)) {
        let (linear, ln_piece) = (time.slope[LINEAR], asked.ln_batch - asked.ln_pieces);
        time.slope[..LINEAR].iter().enumerate().for_each(|(at, slope)| each(at, *slope));
        each(GROWTH, linear * (ln_piece - self.middle));
        each(THREADS, -linear * asked.ln_threads);
        each(POWER, -linear * asked.ln_power);
        each(PREFETCH, -asked.ln_prefetch);
        let precisions = || asked.precisions.iter().flatten();
        precisions().for_each(|place| each(usize::from(*place), -linear));
        if precisions().next().is_some() {
            each(MIXED, time.slope[HALF_BATCH]);
        }
    }

    /// Returns the speed with its variance from the uncertainty of the coefficients.
    pub(super) fn uncertain_speed(&self, asked: &Asked) -> (f64, f64) {
        if self.covariance.is_empty() {
            return (self.step(asked).speed, 0.0);
        }
        let (time, _) = self.time::<DIRECTIONS>(asked);
        let speed = self.speed(asked, time.value);
        // Only coefficients that matter for the config are considered.
        let mut slopes = [(0, 0.0); DIRECTIONS + MOST_PRECISIONS + 5];
        let mut count = 0;
        let mut add = |at: usize, slope: f64| {
            if slope != 0.0 {
                slopes[count] = (at, slope);
                count += 1;
            }
        };
        self.follow(asked, &time, &mut add);
        let last = self.raw.len() - 1;
        add(last, 1.0);
        let mut variance = 0.0;
        for (i, (row, slope)) in slopes[..count].iter().enumerate() {
            let row = &self.covariance[row * (last + 1)..][..=last];
            let others: f64 = slopes[..i].iter().map(|(column, other)| row[*column] * other).sum();
            variance += slope * (2.0 * others + slope * row[slopes[i].0]);
        }
        (speed, variance.max(0.0))
    }

    fn speed(&self, asked: &Asked, time: f64) -> f64 {
        asked.ln_batch - ln(time) + self.raw[PREFETCH] * asked.ln_prefetch - self.unit
    }

    /// Returns the time of a batch, and the part of it that is not spent waiting for data. The unit is the device's time for a
    /// sample in full precision.
    fn time<const N: usize>(&self, asked: &Asked) -> (Dual<N>, Dual<N>) {
        let device = self.device::<N>(asked);
        let load = Dual::along(exp(asked.ln_batch) * self.loader, LOADER);
        let Some(workers) = asked.workers else {
            return (device.larger(load), device);
        };
        if workers < 0.5 {
            // Without workers nothing is loaded ahead: loading and computing alternate.
            return (device.plus(load), device);
        }
        let (workers, cores) = (Dual::constant(workers), Dual::along(self.cores, CORES));
        // Workers that are busy while the device computes share the cores with threads that compute on the host.
        let on_host = Dual::along(self.host * exp(asked.ln_threads), HOST);
        let crowd = workers.smaller(load.over(device)).plus(on_host).over(cores);
        let mut own = device;
        if asked.ln_threads > 0.0 && crowd.value > 1.0 {
            // At each barrier the threads wait for the slowest one.
            own = own.times(crowd.power(self.raw[BARRIER].max(0.0), BARRIER));
        }
        let all = load.plus(on_host.times(device)).over(cores);
        let part = if self.host < 1.0 { Dual::along(self.host, HOST) } else { Dual::constant(1.0) };
        own = own.larger(all.times(part));
        (own.larger(load.over(workers.smaller(cores)).larger(all)), own)
    }

    /// Returns the time of the device: a fixed time to launch each piece, combined with a time in proportion to its
    /// size.
    fn device<const N: usize>(&self, asked: &Asked) -> Dual<N> {
        let mut speed = self.raw[THREADS] * asked.ln_threads + self.raw[POWER] * asked.ln_power;
        let mut launch = Dual::along(self.launch, HALF_BATCH);
        for place in asked.precisions.iter().flatten() {
            speed += self.raw[usize::from(*place)];
            launch.value = self.launch * self.mixed;
        }
        let ln_piece = asked.ln_batch - asked.ln_pieces;
        let linear = exp(ln_piece + self.raw[GROWTH] * (ln_piece - self.middle) - speed);
        let mut device = launch.beside(Dual::along(linear, LINEAR));
        if asked.ln_pieces != 0.0 || asked.ln_accumulation != 0.0 {
            let update = launch.times(Dual::along(self.update, UPDATE)).scaled(exp(-asked.ln_accumulation));
            device = device.scaled(exp(asked.ln_pieces)).plus(update);
        }
        if asked.ln_devices != 0.0 {
            // More devices take more samples, reduced by the cost of communication.
            device.value *= exp(-self.raw[DEVICES] * asked.ln_devices);
            if let Some(slope) = device.slope.get_mut(DEVICES) {
                *slope -= asked.ln_devices;
            }
        }
        device
    }
}

/// Inverts a precision matrix that is in units of the priors' deviations.
fn covariance(factor: &Triangle, unknowns: &[Unknown]) -> Vec<f64> {
    let size = unknowns.len();
    let mut entries = Vec::with_capacity(size * size);
    for (at, row) in unknowns.iter().enumerate() {
        let mut column = vec![0.0; size];
        column[at] = row.deviation;
        factor.solve(&mut column);
        factor.solve_transposed(&mut column);
        entries.extend(column.iter().zip(unknowns).map(|(entry, unknown)| entry * unknown.deviation));
    }
    entries
}

fn wait<const N: usize>(time: Dual<N>, own: Dual<N>) -> f64 {
    (1.0 - own.value / time.value).max(0.0)
}

/// A positive number and the slope of its logarithm along `N` directions.
#[derive(Debug, Clone, Copy)]
struct Dual<const N: usize> {
    value: f64,
    slope: [f64; N],
}

impl<const N: usize> Dual<N> {
    fn constant(value: f64) -> Self {
        Self { value, slope: [0.0; N] }
    }

    /// A number whose logarithm changes along one direction.
    fn along(value: f64, direction: usize) -> Self {
        let mut slope = [0.0; N];
        if let Some(own) = slope.get_mut(direction) {
            *own = 1.0;
        }
        Self { value, slope }
    }

    fn times(self, other: Self) -> Self {
        self.mixed(other, self.value * other.value, 1.0, 1.0)
    }

    fn over(self, other: Self) -> Self {
        self.mixed(other, self.value / other.value, 1.0, -1.0)
    }

    fn plus(self, other: Self) -> Self {
        let sum = self.value + other.value;
        self.mixed(other, sum, self.value / sum, other.value / sum)
    }

    fn scaled(mut self, by: f64) -> Self {
        self.value *= by;
        self
    }

    /// Returns the power of a number whose exponent is itself the unknown of a direction.
    fn power(mut self, exponent: f64, direction: usize) -> Self {
        let logarithm = ln(self.value);
        self.value = exp(exponent * logarithm);
        self.slope.iter_mut().for_each(|slope| *slope *= exponent);
        if let Some(own) = self.slope.get_mut(direction) {
            *own += logarithm;
        }
        self
    }

    /// The norm of order two.
    fn beside(self, other: Self) -> Self {
        let (a, b) = (self.value * self.value, other.value * other.value);
        self.mixed(other, (a + b).sqrt(), a / (a + b), b / (a + b))
    }

    /// Returns the norm of order four: the larger of two, and somewhat more if they are about equal.
    fn larger(self, other: Self) -> Self {
        let (low, high) = if self.value < other.value { (self, other) } else { (other, self) };
        let ratio = low.value / high.value;
        let fourth = ratio * ratio * ratio * ratio;
        let share = fourth / (1.0 + fourth);
        low.mixed(high, high.value * (1.0 + fourth).sqrt().sqrt(), share, 1.0 - share)
    }

    /// Returns the smaller of two, and somewhat less if they are about equal.
    fn smaller(self, other: Self) -> Self {
        let one = Self::constant(1.0);
        one.over(one.over(self).larger(one.over(other)))
    }

    fn mixed(mut self, other: Self, value: f64, own: f64, others: f64) -> Self {
        self.value = value;
        for (slope, other) in self.slope.iter_mut().zip(&other.slope) {
            *slope = own * *slope + others * other;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> Vec<f64> {
        // Half batch, loader, cores, host, barrier, update, devices, growth, mixed, threads, power, prefetch, bf16, unit.
        vec![3.0, -0.5, 0.7, -0.2, 1.1, -1.0, 0.8, 0.03, 0.1, 0.5, 0.4, 0.02, 0.4, 0.3]
    }

    #[test]
    fn slopes_are_those_of_the_formula_and_make_the_variance() {
        let deviations: Vec<f64> = (0..14).map(|at| 0.2 + 0.05 * f64::from(at)).collect();
        let unknowns: Vec<Unknown> = deviations.iter().map(|deviation| Unknown::new(0.0, *deviation)).collect();
        let identity = Triangle::symmetric(14, |i, j| f64::from(u8::from(i == j)));
        let found = Found { numbers: raw(), prior: 0.0, precision: Some(identity), ends: Vec::new() };
        let numbers = Numbers::found(found, &unknowns, 4.0, Vec::new());
        let asked = |workers: Option<f64>, threads: f64, batch: f64| Asked {
            ln_batch: batch,
            ln_pieces: 0.7,
            workers,
            ln_threads: threads,
            ln_power: 0.2,
            ln_devices: 1.0,
            ln_prefetch: 0.7,
            precisions: [Some(12), None, None],
            ..Asked::default()
        };
        for asked in
            [asked(None, 0.0, 3.0), asked(Some(0.0), 0.7, 2.0), asked(Some(2.0), 0.7, 5.0), asked(Some(4.0), 0.0, 4.0)]
        {
            let (speed, variance) = numbers.uncertain_speed(&asked);
            assert!((speed - numbers.step(&asked).speed).abs() < 1e-12);
            let (mut slopes, mut waits) = (vec![0.0; 14], vec![0.0; 14]);
            let _ = numbers.followed(&asked, &mut slopes, &mut waits);
            for at in 0..14 {
                let moved = |by: f64| {
                    let mut there = raw();
                    there[at] += by;
                    Numbers::new(&there, 4.0).step(&asked)
                };
                let (up, down) = (moved(1e-5), moved(-1e-5));
                let (speed, wait) = ((up.speed - down.speed) / 2e-5, (up.wait - down.wait) / 2e-5);
                assert!((speed - slopes[at]).abs() < 1e-5, "{asked:?} {at}: {}, not {speed}", slopes[at]);
                assert!((wait - waits[at]).abs() < 1e-5, "{asked:?} {at}: {}, not {wait}", waits[at]);
            }
            let expected: f64 = slopes.iter().zip(&deviations).map(|(slope, by)| (slope * by) * (slope * by)).sum();
            assert!((variance - expected).abs() < 1e-4 * expected, "{asked:?}: {variance}, not {expected}");
        }
    }

    #[test]
    fn without_workers_the_one_waits_for_the_other_and_with_them_the_longer_counts() {
        let numbers = Numbers::new(&raw(), 4.0);
        let at = |workers: f64, batch: f64| {
            numbers.step(&Asked { ln_batch: batch, workers: Some(workers), ..Asked::default() })
        };
        assert!(at(0.0, 5.0).speed < at(1.0, 5.0).speed && at(1.0, 5.0).speed < at(2.0, 5.0).speed);
        assert!(at(0.0, 5.0).wait > at(2.0, 5.0).wait);
        assert!(at(0.0, 1.0).wait < at(0.0, 5.0).wait, "small batches wait for launches, not for data");
    }
}
