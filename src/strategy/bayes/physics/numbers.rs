//! The most likely numbers of a model: least squares with normal priors.

use crate::strategy::bayes::matrix::Triangle;
use crate::strategy::bayes::normal::ln;

/// A number of a model with its normal prior.
#[derive(Debug, Clone, Copy)]
pub(in crate::strategy::bayes) struct Unknown {
    pub(in crate::strategy::bayes) mean: f64,
    pub(in crate::strategy::bayes) deviation: f64,
}

impl Unknown {
    pub(in crate::strategy::bayes) const fn new(mean: f64, deviation: f64) -> Self {
        Self { mean, deviation }
    }
}

/// What was found.
#[derive(Debug, Clone)]
pub(in crate::strategy::bayes) struct Found {
    pub(in crate::strategy::bayes) numbers: Vec<f64>,
    /// The part of the cost that the priors have.
    pub(in crate::strategy::bayes) prior: f64,
    /// The precision of the numbers around their most likely values, in units of the priors' deviations, factored.
    pub(in crate::strategy::bayes) precision: Option<Triangle>,
}

/// Steps that one search may take, from its start and from another one.
const ROUNDS: usize = 12;
/// How far a number is moved to see what follows it, in deviations of its prior.
const NUDGE: f64 = 1e-3;
/// Differences of so many deviations and more count as mistakes rather than as evidence: from here on their weight falls
/// (Cauchy's loss; Huber and Ronchetti, "Robust statistics", 2009).
const WILD: f64 = 2.5;

/// The numbers that make differences, in standard deviations each, and priors least: Levenberg's and Marquardt's steps.
///
/// `starts` are numbers to begin from, tried one after the other.
pub(in crate::strategy::bayes) fn most_likely(
    unknowns: &[Unknown],
    starts: &[Vec<f64>],
    mut differences: impl FnMut(&[f64], &mut Vec<f64>),
) -> Found {
    let mut best: Option<(f64, Vec<f64>)> = None;
    for start in starts {
        let (cost, numbers) = descend(unknowns, start.clone(), &mut differences);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, numbers));
        }
    }
    let numbers = best.map_or_else(|| unknowns.iter().map(|unknown| unknown.mean).collect(), |(_, numbers)| numbers);
    let (slopes, _) = slopes(unknowns, &numbers, &mut differences);
    let precision = slopes.precision(0.0).cholesky();
    let prior = 0.5 * standard(unknowns, &numbers).map(|z| z * z).sum::<f64>();
    Found { numbers, prior, precision }
}

fn standard(unknowns: &[Unknown], numbers: &[f64]) -> impl Iterator<Item = f64> {
    numbers.iter().zip(unknowns).map(|(number, unknown)| (number - unknown.mean) / unknown.deviation)
}

fn cost(unknowns: &[Unknown], numbers: &[f64], differences: &[f64]) -> f64 {
    let priors: f64 = standard(unknowns, numbers).map(|z| 0.5 * z * z).sum();
    let cauchy = |difference: &f64| 0.5 * WILD * WILD * ln(1.0 + (difference / WILD) * (difference / WILD));
    let total = priors + differences.iter().map(cauchy).sum::<f64>();
    if total.is_finite() { total } else { f64::INFINITY }
}

fn descend(
    unknowns: &[Unknown],
    mut numbers: Vec<f64>,
    differences: &mut impl FnMut(&[f64], &mut Vec<f64>),
) -> (f64, Vec<f64>) {
    const EASIER: f64 = 0.3;
    const HARDER: f64 = 4.0;
    const SMALLEST_GAIN: f64 = 1e-4;
    let mut damping = 0.1;
    let mut there = Vec::new();
    differences(&numbers, &mut there);
    let mut least = cost(unknowns, &numbers, &there);
    let mut known = None;
    for _ in 0..ROUNDS {
        let slopes = known.take().unwrap_or_else(|| slopes(unknowns, &numbers, differences).0);
        let Some(factor) = slopes.precision(damping).cholesky() else { break };
        let mut step = slopes.pull.clone();
        factor.solve(&mut step);
        factor.solve_transposed(&mut step);
        let moved: Vec<f64> = numbers
            .iter()
            .zip(unknowns.iter().zip(&step))
            .map(|(number, (unknown, step))| number - unknown.deviation * step.clamp(-2.0, 2.0))
            .collect();
        differences(&moved, &mut there);
        let found = cost(unknowns, &moved, &there);
        if found < least {
            let gain = least - found;
            (numbers, least, damping) = (moved, found, damping * EASIER);
            if gain < SMALLEST_GAIN {
                break;
            }
        } else {
            damping *= HARDER;
            known = Some(slopes);
        }
    }
    (least, numbers)
}

/// How the cost changes around some numbers, in units of the priors' deviations.
struct Slopes {
    /// The curvature, without the priors' part.
    curvature: Vec<Vec<f64>>,
    /// The slope of the cost.
    pull: Vec<f64>,
}

impl Slopes {
    fn precision(&self, damping: f64) -> Triangle {
        let entry = |i: usize, j: usize| {
            let own = if i == j { 1.0 + damping * (1.0 + self.curvature[i][i]) } else { 0.0 };
            self.curvature[i][j] + own
        };
        Triangle::symmetric(self.pull.len(), entry)
    }
}

fn slopes(
    unknowns: &[Unknown],
    numbers: &[f64],
    differences: &mut impl FnMut(&[f64], &mut Vec<f64>),
) -> (Slopes, Vec<f64>) {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    differences(numbers, &mut here);
    let mut moved = numbers.to_vec();
    let mut by_number: Vec<Vec<f64>> = Vec::with_capacity(numbers.len());
    for (at, unknown) in unknowns.iter().enumerate() {
        moved[at] = numbers[at] + NUDGE * unknown.deviation;
        differences(&moved, &mut there);
        moved[at] = numbers[at];
        by_number.push(there.iter().zip(&here).map(|(there, here)| (there - here) / NUDGE).collect());
    }
    let weights: Vec<f64> =
        here.iter().map(|difference| 1.0 / (1.0 + (difference / WILD) * (difference / WILD))).collect();
    let weighted =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).zip(&weights).map(|((a, b), weight)| a * b * weight).sum() };
    let curvature: Vec<Vec<f64>> =
        (0..numbers.len()).map(|i| (0..=i).map(|j| weighted(&by_number[i], &by_number[j])).collect()).collect();
    let pull = by_number.iter().zip(standard(unknowns, numbers)).map(|(slope, z)| weighted(slope, &here) + z).collect();
    (Slopes { curvature, pull }, here)
}
