//! Finds the most likely coefficients of a model: least squares with normal priors.

use crate::search::strategy::bayes::{matrix::Triangle, normal::ln};

/// A coefficient of a model with its normal prior.
#[derive(Debug, Clone, Copy)]
pub(in crate::search::strategy::bayes) struct Unknown {
    pub(in crate::search::strategy::bayes) mean: f64,
    pub(in crate::search::strategy::bayes) deviation: f64,
}

impl Unknown {
    pub(in crate::search::strategy::bayes) const fn new(mean: f64, deviation: f64) -> Self {
        Self { mean, deviation }
    }
}

/// The result of a fit.
#[derive(Debug, Clone)]
pub(in crate::search::strategy::bayes) struct Found {
    pub(in crate::search::strategy::bayes) numbers: Vec<f64>,
    /// The contribution of the priors to the cost.
    pub(in crate::search::strategy::bayes) prior: f64,
    /// The precision matrix of the coefficients around their most likely values, in units of the priors' deviations,
    /// factored.
    pub(in crate::search::strategy::bayes) precision: Option<Triangle>,
    /// The ends of the optimisation from the other starts.
    pub(in crate::search::strategy::bayes) ends: Vec<Vec<f64>>,
}

/// The data that coefficients are fitted to.
pub(in crate::search::strategy::bayes) trait Evidence {
    /// Computes how far the model is from each observation, in standard deviations.
    fn differences(&self, numbers: &[f64], into: &mut Vec<f64>);
    /// Computes the derivatives of these differences by the coefficients, one difference after the other.
    fn slopes(&self, numbers: &[f64], into: &mut Vec<f64>);
}

/// The most steps of one optimisation: a round number, which bounds the time of a fit.
const ROUNDS: usize = 12;
/// The number of standard deviations from which on a difference counts as an error rather than as evidence: beyond it
/// the weight falls (Cauchy's loss; Huber and Ronchetti, "Robust statistics", 2009).
const WILD: f64 = 2.5;

/// Finds the coefficients with the smallest cost from differences, in standard deviations, and priors, by Levenberg's
/// and Marquardt's steps.
///
/// `starts` are further coefficients to begin from, one after the other.
pub(in crate::search::strategy::bayes) fn most_likely(
    unknowns: &[Unknown],
    starts: &[Vec<f64>],
    evidence: &impl Evidence,
) -> Found {
    let mut ends: Vec<(f64, Vec<f64>)> =
        starts.iter().map(|start| descend(unknowns, start.clone(), evidence)).collect();
    ends.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut ends = ends.into_iter().map(|(_, numbers)| numbers);
    let numbers = ends.next().unwrap_or_else(|| unknowns.iter().map(|unknown| unknown.mean).collect());
    let precision = slopes(unknowns, &numbers, evidence).precision(0.0).cholesky();
    let prior = 0.5 * standard(unknowns, &numbers).map(|z| z * z).sum::<f64>();
    Found { numbers, prior, precision, ends: ends.collect() }
}

/// Returns the cost of some coefficients.
pub(super) fn cost_at(unknowns: &[Unknown], numbers: &[f64], evidence: &impl Evidence) -> f64 {
    let mut there = Vec::new();
    evidence.differences(numbers, &mut there);
    cost(unknowns, numbers, &there)
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

fn descend(unknowns: &[Unknown], mut numbers: Vec<f64>, evidence: &impl Evidence) -> (f64, Vec<f64>) {
    /// Factors for the damping after a better and after a worse step, and the gain below which the search ends: round
    /// numbers.
    const EASIER: f64 = 0.3;
    const HARDER: f64 = 4.0;
    const SMALLEST_GAIN: f64 = 1e-4;
    let mut damping = 0.1;
    let mut there = Vec::new();
    evidence.differences(&numbers, &mut there);
    let mut least = cost(unknowns, &numbers, &there);
    let mut known = None;
    for _ in 0..ROUNDS {
        let slopes = known.take().unwrap_or_else(|| slopes(unknowns, &numbers, evidence));
        let Some(factor) = slopes.precision(damping).cholesky() else { break };
        let mut step = slopes.pull.clone();
        factor.solve(&mut step);
        factor.solve_transposed(&mut step);
        let moved: Vec<f64> = numbers
            .iter()
            .zip(unknowns.iter().zip(&step))
            .map(|(number, (unknown, step))| number - unknown.deviation * step.clamp(-2.0, 2.0))
            .collect();
        evidence.differences(&moved, &mut there);
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

/// How the cost changes around some coefficients, in units of the priors' deviations.
struct Slopes {
    /// The curvature, without the contribution of the priors.
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

fn slopes(unknowns: &[Unknown], numbers: &[f64], evidence: &impl Evidence) -> Slopes {
    let (mut here, mut rows) = (Vec::new(), Vec::new());
    evidence.differences(numbers, &mut here);
    evidence.slopes(numbers, &mut rows);
    let count = unknowns.len();
    let mut curvature = vec![vec![0.0; count]; count];
    let mut pull: Vec<f64> = standard(unknowns, numbers).collect();
    for (difference, row) in here.iter().zip(rows.chunks_exact_mut(count.max(1))) {
        let weight = 1.0 / (1.0 + (difference / WILD) * (difference / WILD));
        row.iter_mut().zip(unknowns).for_each(|(slope, unknown)| *slope *= unknown.deviation);
        for i in 0..count {
            let own = weight * row[i];
            if own != 0.0 {
                pull[i] += own * difference;
                for j in 0..=i {
                    curvature[i][j] += own * row[j];
                }
            }
        }
    }
    Slopes { curvature, pull }
}
