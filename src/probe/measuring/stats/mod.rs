//! Statistics of step times and rates; pure functions.

mod autoregressive;
mod isolated;
mod period;
#[cfg(test)]
pub(crate) mod simulation;
mod student;
mod throughput_interval;
mod warmup;

pub use isolated::isolated_above;
pub use student::student_quantile;
use student::student_tail;
pub use throughput_interval::{MeanRate, Work};
pub use warmup::warmup_length;

/// Returns the median; `None` without any number.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

/// Returns the mean; `None` without any number.
pub fn mean(numbers: &[f64]) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// A number with its standard error. Where several are combined, only the ratios of their errors matter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The number.
    pub value: f64,
    /// Its standard error, above zero.
    pub error: f64,
}

/// Returns the mean of observations, weighted by their errors, with its own error; `None` without any.
pub fn weighted_mean(observations: &[Observation]) -> Option<Observation> {
    let weight = |observation: &Observation| observation.error.powi(-2);
    let total: f64 = observations.iter().map(weight).sum();
    let value = observations.iter().map(|observation| observation.value * weight(observation)).sum::<f64>() / total;
    (!observations.is_empty()).then(|| Observation { value, error: total.sqrt().recip() })
}

/// Returns how much more repeated observations differ than their errors explain, with the degrees of freedom of that
/// ratio.
///
/// This is the ratio of Birge ("The calculation of errors by the method of least squares", Physical Review 40, 1932)
/// over several groups, each around its own weighted mean. It is 1 where the errors explain the whole spread. `None`
/// without repetition.
pub fn birge_ratio<'g>(groups: impl IntoIterator<Item = &'g [Observation]>) -> Option<(f64, usize)> {
    let (mut squares, mut degrees) = (0.0, 0);
    for group in groups {
        let Some(mean) = weighted_mean(group) else { continue };
        squares += group.iter().map(|one| ((one.value - mean.value) / one.error).powi(2)).sum::<f64>();
        degrees += group.len() - 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    (degrees > 0).then(|| ((squares / degrees as f64).sqrt(), degrees))
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

    #[test]
    fn a_measurement_that_did_not_settle_hardly_counts() {
        let observation = |value, error| Observation { value, error };
        let group = [observation(10.0, 0.01), observation(5.0, 1.0)];
        let mean = weighted_mean(&group).unwrap();
        assert!((mean.value - 10.0).abs() < 1e-3, "{mean:?}");
        let equal = [observation(1.0, 0.5), observation(3.0, 0.5)];
        assert_eq!(weighted_mean(&equal).unwrap().value, 2.0);
        assert_eq!(birge_ratio([&equal[..], &equal[..1]]), Some((8_f64.sqrt(), 1)));
        assert_eq!(birge_ratio([&equal[..1]]), None);
    }
}
