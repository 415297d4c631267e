//! Computes quantiles of Student's t distribution and of the normal distribution.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_PI_2, PI, TAU};

/// Returns the value that a t-distributed variable with this many degrees of freedom exceeds with a probability of `tail`, below
/// 0.5.
///
/// The result is right to five digits (Hill, "Algorithm 396: Student's t-quantiles", Communications of the ACM 13(10), 1970).
pub fn student_quantile(degrees: usize, tail: f64) -> f64 {
    // The names follow the algorithm; its constants have no further meaning.
    let both = 2.0 * tail;
    let n = degrees as f64;
    match degrees {
        0 => return f64::INFINITY,
        1 => return (both * FRAC_PI_2).tan().recip(),
        2 => return (2.0 / (both * (2.0 - both)) - 2.0).sqrt(),
        _ => {}
    }
    let a = 1.0 / (n - 0.5);
    let b = 48.0 / (a * a);
    let mut c = ((20700.0 * a / b - 98.0) * a - 16.0) * a + 96.36;
    let d = ((94.5 / (b + c) - 3.0) / b + 1.0) * (a * FRAC_PI_2).sqrt() * n;
    let mut y = (d * both).powf(2.0 / n);
    if y > 0.05 + a {
        let x = -normal_quantile(tail);
        y = x * x;
        if degrees < 5 {
            c += 0.3 * (n - 4.5) * (x + 0.6);
        }
        c += (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b;
        y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x;
        y = (a * y * y).exp_m1();
    } else {
        y = ((1.0 / (((n + 6.0) / (n * y) - 0.089 * d - 0.822) * (n + 2.0) * 3.0) + 0.5 / (n + 4.0)) * y - 1.0)
            * (n + 1.0)
            / (n + 2.0)
            + 1.0 / y;
    }
    (n * y).sqrt()
}

/// Returns the probability that a t-distributed variable exceeds `t`, which is not negative.
///
/// The result is exact for one and two degrees of freedom. Otherwise it follows Wallace ("Bounds on normal approximations to
/// Student's and the chi-square distributions", Annals of Mathematical Statistics 30(4), 1959). Its error is at most a tenth of the
/// probability down to 0.005. Down to 0.001 it is at most a quarter, and the result is too large.
pub(super) fn student_tail(degrees: usize, t: f64) -> f64 {
    let n = degrees as f64;
    match degrees {
        0 => 0.5,
        1 => 0.5 - t.atan() / PI,
        2 => 0.5 - t / (2.0 * (2.0 + t * t).sqrt()),
        _ => {
            let normal = (8.0 * n + 1.0) / (8.0 * n + 3.0) * (n * (t * t / n).ln_1p()).sqrt();
            normal_tail(normal)
        }
    }
}

/// Returns the value that a standard normal variable exceeds with a probability of `tail`, below 0.5.
///
/// It uses the approximation of Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.2.23, refined by two steps of
/// Newton's method.
pub fn normal_quantile(tail: f64) -> f64 {
    let t = (-2.0 * tail.ln()).sqrt();
    let mut x =
        t - ((0.010_328 * t + 0.802_853) * t + 2.515_517) / (((0.001_308 * t + 0.189_269) * t + 1.432_788) * t + 1.0);
    for _ in 0..2 {
        x += (normal_tail(x) - tail) / ((-x * x / 2.0).exp() / TAU.sqrt());
    }
    x
}

/// Returns the probability that a standard normal variable exceeds `x`.
pub(crate) fn normal_tail(x: f64) -> f64 {
    libm::erfc(x * FRAC_1_SQRT_2) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from Fisher and Yates, "Statistical Tables", table III; for the smallest tails, exact values.
    #[test]
    fn quantiles_match_the_tables() {
        for (degrees, tail, expected) in [
            (1, 0.025, 12.706),
            (2, 0.025, 4.303),
            (3, 0.025, 3.182),
            (4, 0.025, 2.776),
            (4, 0.005, 4.604),
            (9, 0.0005, 4.781),
            (13, 0.025, 2.160),
            (19, 0.005, 2.861),
            (30, 0.025, 2.042),
            (1000, 0.025, 1.962),
            (1_000_000, 0.001, 3.090),
        ] {
            let quantile = student_quantile(degrees, tail);
            assert!((quantile - expected).abs() < 1.5e-3, "{degrees}, {tail}: {quantile}");
        }
        assert!(student_quantile(0, 0.025).is_infinite());
    }

    #[test]
    fn the_tail_beyond_a_quantile_is_the_one_asked_for() {
        for degrees in [1, 2, 3, 4, 9, 19, 50, 100] {
            for (tail, error) in [(0.3, 0.1), (0.1, 0.1), (0.025, 0.1), (0.005, 0.1), (0.001, 0.25)] {
                let found = student_tail(degrees, student_quantile(degrees, tail));
                assert!((found / tail - 1.0).abs() < error, "{degrees}, {tail}: {found}");
            }
        }
        assert_eq!(student_tail(5, f64::INFINITY), 0.0);
        // A smaller tail is further out.
        for degrees in [1, 2, 3, 4, 5, 7, 12, 19, 100] {
            let quantiles: Vec<f64> =
                [0.3, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6].iter().map(|tail| student_quantile(degrees, *tail)).collect();
            assert!(quantiles.windows(2).all(|pair| pair[0] < pair[1]), "{degrees}: {quantiles:?}");
        }
    }
}
