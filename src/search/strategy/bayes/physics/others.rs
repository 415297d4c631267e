//! Finds alternative coefficients that the history allows, each with its weight: the uncertainty that the most likely
//! ones do not show.

use super::numbers::{Found, Unknown};
use crate::search::strategy::bayes::normal::exp;

/// Pairs of alternative coefficients, one of each on either side of the most likely ones. A round number, as a bound on
/// time.
const PAIRS: u64 = 8;

/// Returns where the optimisation ended from other starts, and coefficients drawn around the most likely ones, from the
/// normal distribution whose precision is the curvature there. The draws are always the same, so that the same history
/// gives the same proposal.
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

/// Draws coefficients from the priors.
pub(super) fn expected(unknowns: &[Unknown]) -> Vec<Vec<f64>> {
    let means: Vec<f64> = unknowns.iter().map(|unknown| unknown.mean).collect();
    let mut chance = Chance(0x5EED);
    let mut drawn = vec![means.clone()];
    for _ in 0..PAIRS / 2 {
        let step: Vec<f64> = unknowns.iter().map(|unknown| unknown.deviation * chance.normal()).collect();
        drawn.extend([1.0, -1.0].map(|side| means.iter().zip(&step).map(|(mean, step)| mean + side * step).collect()));
    }
    // The unit of speeds is the same for all draws.
    drawn.iter_mut().filter_map(|numbers: &mut Vec<f64>| numbers.last_mut()).for_each(|unit| *unit = 0.0);
    drawn
}

/// Computes weights from costs. A draw that is less likely by a factor has a weight that is smaller by the same factor. No draw
/// weighs more than the first.
pub(super) fn weights(costs: &[f64]) -> Vec<f64> {
    let least = costs.first().copied().unwrap_or(0.0);
    let raw: Vec<f64> =
        costs.iter().map(|cost| if cost.is_finite() { exp((least - cost).min(0.0)) } else { 0.0 }).collect();
    let sum: f64 = raw.iter().sum();
    raw.into_iter().map(|weight| weight / sum).collect()
}

/// A sequence of pseudorandom numbers (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
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

    /// Returns a nearly normal number: the sum of twelve uniform ones.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
