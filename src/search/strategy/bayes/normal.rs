//! The normal distribution, and the expected improvement.
//!
//! Exponentials and logarithms come from `libm`, whose results are the same on every platform: the same history must
//! give the same proposal everywhere.

use std::f64::consts::PI;

use crate::probe::stats::normal_tail;

#[inline]
pub(super) fn exp(x: f64) -> f64 {
    libm::exp(x)
}

#[inline]
pub(super) fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// Returns the probability of a value below `z`.
pub(super) fn cumulative(z: f64) -> f64 {
    normal_tail(-z)
}

/// Returns the logarithm of the expected improvement over `best` for a normally distributed value (Jones, Schonlau and Welch,
/// "Efficient global optimization of expensive black-box functions", 1998). This form does not underflow (Ament et al., "Unexpected
/// improvements to expected improvement", 2023).
pub(super) fn ln_expected_improvement(mean: f64, deviation: f64, best: f64) -> f64 {
    let z = (mean - best) / deviation;
    ln(deviation) + ln_unit_improvement(z)
}

/// ln(φ(z) + z Φ(z)).
fn ln_unit_improvement(z: f64) -> f64 {
    /// Below this value the sum suffers from cancellation, and its asymptotic series is more accurate.
    const CANCELS: f64 = -6.0;
    if z > CANCELS {
        let density = exp(-0.5 * z * z) / (2.0 * PI).sqrt();
        ln(density + z * cumulative(z))
    } else {
        -0.5 * z * z - 0.5 * ln(2.0 * PI) - 2.0 * ln(-z) + libm::log1p(-3.0 / (z * z))
    }
}

/// An upper bound of the logarithm of the expected improvement, from a table; for many candidates that is enough.
pub(super) struct Improvement {
    /// The logarithm of the unit improvement at the end of each step.
    ends: Vec<f64>,
}

/// The range of the table, and its steps per unit.
const FROM: f64 = -8.0;
const TO: f64 = 8.0;
const STEPS: f64 = 32.0;

impl Improvement {
    pub(super) fn new() -> Self {
        let mut ends = Vec::new();
        let mut end = FROM;
        while end < TO {
            end += 1.0 / STEPS;
            ends.push(ln_unit_improvement(end));
        }
        Self { ends }
    }

    /// Returns a number that is not less than [`ln_expected_improvement`], and hardly larger.
    pub(super) fn bound(&self, mean: f64, deviation: f64, best: f64) -> f64 {
        let z = (mean - best) / deviation;
        let unit = if (FROM..TO).contains(&z) {
            let step = (((z - FROM) * STEPS) as usize).min(self.ends.len() - 1);
            self.ends[step]
        } else {
            ln_unit_improvement(z)
        };
        ln(deviation) + unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_improvement_is_known_at_a_few_places() {
        // φ(0) = 0.39894; and far above the best, the improvement equals the difference.
        assert!((ln_expected_improvement(1.0, 2.0, 1.0) - (2.0 * 0.398_942_28_f64).ln()).abs() < 1e-6);
        assert!((ln_expected_improvement(9.0, 0.1, 1.0) - 8.0_f64.ln()).abs() < 1e-9);
    }

    #[test]
    fn the_table_bounds_it_closely() {
        let table = Improvement::new();
        for step in 0..4000 {
            let (mean, deviation) = (f64::from(step % 977) * 0.031 - 15.0, 0.01 + f64::from(step % 83) * 0.05);
            let (exact, bound) = (ln_expected_improvement(mean, deviation, 0.3), table.bound(mean, deviation, 0.3));
            assert!(exact <= bound + 1e-9 && bound - exact < 0.3, "{mean} {deviation}: {exact} {bound}");
        }
    }

    #[test]
    fn it_grows_with_the_mean_and_the_deviation_and_has_no_jump() {
        let at = |z: f64| ln_unit_improvement(z);
        let mut last = f64::NEG_INFINITY;
        for step in 0..4000 {
            let now = at(-30.0 + f64::from(step) * 0.01);
            assert!(now > last && now.is_finite(), "{step}");
            last = now;
        }
        assert!(ln_expected_improvement(0.0, 2.0, 1.0) > ln_expected_improvement(0.0, 1.0, 1.0));
    }
}
