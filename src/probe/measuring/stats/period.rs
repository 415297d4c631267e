//! Finds the period of a series, such as step times with a loader whose workers deliver in bursts.

/// Returns the number of steps after which the series repeats: the shortest lag at which numbers are far more similar than
/// neighbours are. The series must contain that period at least eight times.
pub(super) fn period(series: &[f64]) -> Option<usize> {
    /// The longest period allows for 64 workers. The other numbers are round. With them, the tests below find bursts, and find no
    /// period in chance.
    const LONGEST: usize = 64;
    const FEWEST: usize = 8;
    const LOOKED_AT: usize = 1024;
    const ALIKE: f64 = 0.5;
    let series = &series[series.len().saturating_sub(LOOKED_AT)..];
    let mean = series.iter().sum::<f64>() / count(series.len().max(1));
    let residuals: Vec<f64> = series.iter().map(|number| number - mean).collect();
    let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let longest = LONGEST.min(residuals.len() / FEWEST);
    if squares <= 0.0 || longest < 2 {
        return None;
    }
    let correlation = |lag: usize| {
        let products: f64 = residuals.iter().zip(&residuals[lag..]).map(|(a, b)| a * b).sum();
        products / squares * count(residuals.len()) / count(residuals.len() - lag)
    };
    let near = correlation(1);
    (2..=longest).find(|&lag| correlation(lag) >= ALIKE.max(near + ALIKE / 2.0))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Process, Random};
    use super::*;

    #[test]
    fn bursts_have_their_period_and_chance_has_none() {
        let mut random = Random(1);
        for workers in [2, 3, 7, 16] {
            assert_eq!(period(&Process::Bursts(workers, 0.1).times(20 * workers, &mut random)), Some(workers));
        }
        for process in [Process::Independent(0.1), Process::Autoregressive(0.8, 0.1), Process::LogNormal(1.0)] {
            assert_eq!(period(&process.times(200, &mut random)), None, "{process:?}");
        }
        assert_eq!(period(&[1.0; 100]), None);
        assert_eq!(period(&[]), None);
    }
}
