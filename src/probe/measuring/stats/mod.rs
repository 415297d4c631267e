//! Statistics of step times and rates; pure functions.

mod autoregressive;
mod shape;
#[cfg(test)]
pub(crate) mod simulation;
mod student;
mod throughput_interval;
mod warmup;

pub use shape::isolated_above;
pub(super) use shape::trend;
#[cfg(test)]
pub(crate) use simulation::Random;
pub(crate) use student::normal_tail;
use student::student_tail;
pub use student::{normal_quantile, student_quantile};
pub use throughput_interval::{MeanRate, Work};
pub use warmup::warmup_length;

/// The two-sided 95% quantile of the normal distribution: half the width of a 95% interval in standard errors.
pub const NORMAL_95: f64 = 1.96;

/// Returns the median; `None` without numbers.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

/// Returns the mean; `None` without numbers.
pub fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / count(numbers.len()))
}

/// Converts a count, which is far below 2^53.
pub(super) fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
