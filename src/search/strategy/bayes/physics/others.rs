//! Other numbers that the history allows, each with its weight: what the most likely ones alone would not tell.

use super::numbers::{Found, Unknown};
use crate::search::strategy::bayes::normal::exp;

/// Pairs of other numbers: one of each on either side of the most likely ones.
const PAIRS: u64 = 8;

/// Where the search ended from other starts, and numbers drawn from what is known of them near the most likely ones: the
/// normal distribution whose precision is the curvature there. Always the same draws, so that the same history gives the
/// same proposal.
pub(super) fn drawn(found: &Found, unknowns: &[Unknown]) -> Vec<Vec<f64>> {
    let Some(factor) = &found.precision else { return Vec::new() };
    let mut chance = Chance(0x5EED);
    let mut drawn = found.ends.clone();
    for _ in 0..PAIRS {
        let mut step: Vec<f64> = unknowns.iter().map(|_| chance.normal()).collect();
        factor.solve_transposed(&mut step);
        for side in [1.0, -1.0] {
            let moved = found.numbers.iter().zip(unknowns.iter().zip(&step));
            drawn.push(moved.map(|(number, (unknown, step))| number + side * unknown.deviation * step).collect());
        }
    }
    drawn
}

/// Numbers drawn from what is expected before anything is known.
pub(super) fn expected(unknowns: &[Unknown]) -> Vec<Vec<f64>> {
    let means: Vec<f64> = unknowns.iter().map(|unknown| unknown.mean).collect();
    let mut chance = Chance(0x5EED);
    let mut drawn = vec![means.clone()];
    for _ in 0..PAIRS / 2 {
        let step: Vec<f64> = unknowns.iter().map(|unknown| unknown.deviation * chance.normal()).collect();
        drawn.extend([1.0, -1.0].map(|side| means.iter().zip(&step).map(|(mean, step)| mean + side * step).collect()));
    }
    // The unit of speeds is the same for all.
    drawn.iter_mut().filter_map(|numbers: &mut Vec<f64>| numbers.last_mut()).for_each(|unit| *unit = 0.0);
    drawn
}

/// Weights from costs: what is less likely by a factor counts less by that factor, but none counts more than the first.
pub(super) fn weights(costs: &[f64]) -> Vec<f64> {
    let least = costs.first().copied().unwrap_or(0.0);
    let raw: Vec<f64> =
        costs.iter().map(|cost| if cost.is_finite() { exp((least - cost).min(0.0)) } else { 0.0 }).collect();
    let sum: f64 = raw.iter().sum();
    raw.into_iter().map(|weight| weight / sum).collect()
}

/// A sequence of numbers that look like chance (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// 2014).
struct Chance(u64);

impl Chance {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let share = ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        share
    }

    /// Nearly normal: the sum of twelve.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
