//! Statistics of step times and rates; pure functions.

use crate::outcome::Estimate;

/// The middle of the numbers; `None` without any.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

/// The mean; `None` without any number.
pub fn mean(numbers: &[f64]) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// The median with the 95 % interval that order statistics give it, whatever the distribution.
///
/// The ends are the order statistics at `n/2 ± 1.96 √n / 2` (Conover, "Practical Nonparametric Statistics", 3rd ed.,
/// section 3.2). Below six numbers no pair of them reaches 95 %; there the interval is Student's for the mean.
pub fn median_with_interval(numbers: &[f64]) -> Option<Estimate> {
    const SMALLEST: usize = 6;
    let value = median(numbers)?;
    if numbers.len() < 2 {
        return Some(Estimate::point(value));
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let count = sorted.len() as f64;
    if sorted.len() < SMALLEST {
        let mean = mean(numbers)?;
        let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = student_quantile(sorted.len() - 1) * (variance / count).sqrt();
        return Some(Estimate::interval(value, value - half, value + half));
    }
    let half = 1.96 * count.sqrt() / 2.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the list")]
    let (low, high) =
        ((count / 2.0 - half).floor().max(0.0) as usize, ((count / 2.0 + half).ceil() as usize).min(sorted.len() - 1));
    Some(Estimate::interval(value, sorted[low], sorted[high]))
}

/// The factor of a two-sided 95 % interval of Student's t distribution with so many degrees of freedom.
///
/// Tabulated up to 12; above by the expansion of Cornish and Fisher around the normal quantile (Abramowitz and Stegun,
/// 26.7.5), which is right to three digits there.
pub fn student_quantile(degrees: usize) -> f64 {
    const TABLE: [f64; 12] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];
    const Z: f64 = 1.959_963_985;
    match degrees {
        0 => f64::INFINITY,
        1..=12 => TABLE[degrees - 1],
        _ => {
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
            let n = degrees as f64;
            Z + (Z.powi(3) + Z) / (4.0 * n) + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * n * n)
        }
    }
}

/// A number with its standard error; the errors of several need only be right in proportion to each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The number.
    pub value: f64,
    /// Its standard error, above zero.
    pub error: f64,
}

/// The mean of observations, each with the weight of its error, and the error of that mean; `None` without any.
pub fn weighted_mean(observations: &[Observation]) -> Option<Observation> {
    let weight = |observation: &Observation| observation.error.powi(-2);
    let total: f64 = observations.iter().map(weight).sum();
    let value = observations.iter().map(|observation| observation.value * weight(observation)).sum::<f64>() / total;
    (!observations.is_empty()).then(|| Observation { value, error: total.sqrt().recip() })
}

/// By how much repeated observations differ more than their errors say, with the degrees of freedom behind it.
///
/// The ratio of Birge ("The calculation of errors by the method of least squares", Physical Review 40, 1932) over
/// several groups, each around its own weighted mean: 1 where errors tell the whole spread. `None` without repetition.
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

/// How many numbers at the start of a series are warm-up.
///
/// MSER (White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69(6), 1997):
/// drop as many as make the standard error of the mean of the rest smallest, at most half of the series. A few huge
/// numbers, a checkpoint or an evaluation, must not pull the cut towards them, so numbers beyond six median deviations
/// of the median count as just that far.
pub fn warmup_length(series: &[f64]) -> usize {
    const SHORTEST: usize = 4;
    let Some(middle) = median(series).filter(|_| series.len() >= SHORTEST) else { return 0 };
    let deviations: Vec<f64> = series.iter().map(|number| (number - middle).abs()).collect();
    let reach = 6.0 * median(&deviations).unwrap_or(0.0).max(middle.abs() * 1e-3);
    let clipped: Vec<f64> = series.iter().map(|number| number.clamp(middle - reach, middle + reach)).collect();

    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, 0));
    for cut in (0..clipped.len()).rev() {
        let number = clipped[cut] - middle;
        sum += number;
        squares += number * number;
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let rest = (clipped.len() - cut) as f64;
        let score = (squares - sum * sum / rest).max(0.0) / (rest * rest);
        if cut <= clipped.len() / 2 && score <= best.0 {
            best = (score, cut);
        }
    }
    best.1
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
    fn quantiles_match_the_tables() {
        for (degrees, expected) in [(1, 12.706), (4, 2.776), (13, 2.160), (20, 2.086), (30, 2.042), (1000, 1.962)] {
            assert!((student_quantile(degrees) - expected).abs() < 2e-3, "{degrees}: {}", student_quantile(degrees));
        }
    }

    #[test]
    fn one_number_has_no_interval() {
        assert_eq!(median_with_interval(&[5.0]), Some(Estimate::point(5.0)));
    }

    /// 2,000 samples of an exponential distribution, whose median is ln 2.
    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            #[expect(clippy::cast_precision_loss, reason = "a random number")]
            let uniform = ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            -uniform.ln()
        };
        for size in [8, 20, 101] {
            let covered = (0..2000)
                .filter(|_| {
                    let sample: Vec<f64> = (0..size).map(|_| draw()).collect();
                    let estimate = median_with_interval(&sample).unwrap();
                    (estimate.low.unwrap()..=estimate.high.unwrap()).contains(&2_f64.ln())
                })
                .count();
            assert!(covered >= 1880, "{size}: {covered} of 2000");
        }
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

    #[test]
    fn slow_first_steps_are_warm_up() {
        let mut series = vec![5.0, 2.0, 1.3];
        series.extend((0..40).map(|step| 1.0 + 0.01 * f64::from(step % 3)));
        assert_eq!(warmup_length(&series), 3);
    }

    #[test]
    fn a_steady_series_keeps_almost_all_and_a_hiccup_does_not_cut() {
        let mut series: Vec<f64> = (0..40).map(|step| 1.0 + 0.01 * f64::from(step * 7 % 5)).collect();
        assert!(warmup_length(&series) <= 4, "{}", warmup_length(&series));
        series[15] = 50.0;
        assert!(warmup_length(&series) <= 4, "{}", warmup_length(&series));
        assert_eq!(warmup_length(&[1.0; 30]), 0);
    }
}
