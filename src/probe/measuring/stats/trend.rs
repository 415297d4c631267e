//! Detects a series of step times that still gets shorter.

use super::mean;

/// Returns whether the times still get shorter at the end of the series.
///
/// This is the test for a trend of Mann ("Nonparametric tests against trend", Econometrica 13(3), 1945) over up to 25
/// batch means, with a one-sided error of 5%. A gain of less than 1% from the first half to the second does not count.
pub fn gets_faster(times: &[f64]) -> bool {
    /// The most batches, and the fewest that can show a trend: round numbers.
    const BATCHES: usize = 25;
    const FEWEST: usize = 6;
    /// The 5% point of the normal distribution.
    const CRITICAL: f64 = 1.645;
    /// The same threshold as for a change of level.
    const SMALLEST: f64 = 0.01;
    let size = times.len().div_ceil(BATCHES).max(1);
    let means: Vec<f64> = times[times.len() % size..].chunks_exact(size).filter_map(mean).collect();
    if means.len() < FEWEST {
        return false;
    }
    let pairs = (0..means.len()).flat_map(|later| (0..later).map(move |earlier| (earlier, later)));
    let balance: f64 = pairs.map(|(earlier, later)| sign(means[earlier] - means[later])).sum();
    #[expect(clippy::cast_precision_loss, reason = "at most 25 batches")]
    let count = means.len() as f64;
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    let (first, second) = means.split_at(means.len() / 2);
    let is_large = mean(first).zip(mean(second)).is_some_and(|(first, second)| first > second * (1.0 + SMALLEST));
    is_large && (balance - 1.0) / deviation > CRITICAL
}

/// Returns 1, 0 or -1; unlike `f64::signum` it returns 0 for equal times.
fn sign(difference: f64) -> f64 {
    if difference == 0.0 { 0.0 } else { difference.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::stats::simulation::{Process, Random};

    #[test]
    fn a_series_that_gets_shorter_is_seen_from_six_steps_on() {
        let shorter = |count: u32| (0..count).map(|at| 1.0 / f64::from(at + 10)).collect::<Vec<f64>>();
        assert!(!gets_faster(&[]) && !gets_faster(&shorter(5)));
        assert!(gets_faster(&shorter(6)) && gets_faster(&shorter(400)));
        let longer: Vec<f64> = shorter(50).into_iter().rev().collect();
        assert!(!gets_faster(&longer) && !gets_faster(&[0.1; 50]));
    }

    #[test]
    fn a_gain_that_is_too_small_does_not_count() {
        let barely: Vec<f64> = (0..100).map(|at| 1.0 - 1e-4 * f64::from(at)).collect();
        assert!(!gets_faster(&barely));
    }

    #[test]
    fn steady_noise_seldom_looks_like_a_gain() {
        const ROUNDS: usize = 400;
        let mut random = Random(11);
        let found = (0..ROUNDS).filter(|_| gets_faster(&Process::Independent(0.2).times(60, &mut random))).count();
        assert!(found * 100 <= ROUNDS * 8, "{found} of {ROUNDS}");
    }
}
