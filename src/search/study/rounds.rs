//! Compares confirmations round by round, so that changes of the whole machine between rounds cancel out.
//!
//! The leaders and the baseline are measured again in rounds, each config once per round. If a machine slows down as it
//! warms up, all of a round is slower, but the differences within the round are not affected. The remaining noise is
//! what a model with a level for each config and one for each round cannot explain, in units of the trials' own errors
//! (Birge's ratio, pooled over all configs, since rounds are few).

use super::{Ranked, Spread};
use crate::probe::stats::{self, Observation};

/// What the rounds of confirmations show about noise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds {
    spread: Spread,
}

impl Rounds {
    /// The noise within rounds; `None` where there are too few rounds to distinguish it from chance.
    pub(super) fn of(ranking: &[Ranked]) -> Option<Self> {
        /// The fewest degrees of freedom: with one, an interval is three times as wide as with two, and useless.
        const FEWEST_DEGREES: usize = 2;
        let repeated: Vec<&Ranked> = ranking.iter().filter(|entry| entry.confirmations > 1).collect();
        let rounds = repeated.iter().map(|entry| entry.points.len()).min()?;
        let degrees = (repeated.len() - 1) * (rounds - 1);
        if degrees < FEWEST_DEGREES {
            return None;
        }
        let table: Vec<&[Observation]> = repeated.iter().map(|entry| &entry.points[..rounds]).collect();
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let ratio = (unexplained(&table) / degrees as f64).sqrt();
        let least = if repeated.iter().all(|entry| entry.errors_are_known) { 1.0 } else { 0.0 };
        Some(Self { spread: Spread { ratio: ratio.max(least), degrees } })
    }

    /// Returns the mean difference between two configs over the rounds that both have, with half the width of an
    /// interval that excludes the probability `tail` at each end.
    pub(super) fn difference(self, a: &Ranked, b: &Ranked, tail: f64) -> Option<(f64, f64)> {
        if a.confirmations < 2 || b.confirmations < 2 {
            return None;
        }
        let pairs = a.points.iter().zip(&b.points);
        let differences: Vec<Observation> =
            pairs.map(|(a, b)| Observation { value: a.value - b.value, error: a.error.hypot(b.error) }).collect();
        let mean = stats::weighted_mean(&differences)?;
        Some((mean.value, self.spread.half_width(mean.error, tail)))
    }
}

/// Returns the sum of squares, in units of the errors, that remains of a table of configs by rounds when each config
/// and each round has its own level. It fits these by weighted least squares, one after the other until nothing
/// changes.
fn unexplained(table: &[&[Observation]]) -> f64 {
    const SWEEPS: usize = 50;
    let rounds = table.first().map_or(0, |row| row.len());
    let mut residuals: Vec<Vec<Observation>> = table.iter().map(|row| row.to_vec()).collect();
    for _ in 0..SWEEPS {
        for row in &mut residuals {
            let level = stats::weighted_mean(row).map_or(0.0, |mean| mean.value);
            row.iter_mut().for_each(|residual| residual.value -= level);
        }
        for round in 0..rounds {
            let column: Vec<Observation> = residuals.iter().map(|row| row[round]).collect();
            let level = stats::weighted_mean(&column).map_or(0.0, |mean| mean.value);
            residuals.iter_mut().for_each(|row| row[round].value -= level);
        }
    }
    residuals.iter().flatten().map(|residual| (residual.value / residual.error).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: [f64; 3], error: f64) -> Vec<Observation> {
        values.iter().map(|&value| Observation { value, error }).collect()
    }

    #[test]
    fn levels_of_configs_and_rounds_explain_everything_that_they_add_up_to() {
        let drift = [0.0, -0.5, 0.3];
        let rows: Vec<Vec<Observation>> = [1.0, 7.0, 3.0].map(|level| row(drift.map(|d| d + level), 0.1)).to_vec();
        let table: Vec<&[Observation]> = rows.iter().map(Vec::as_slice).collect();
        assert!(unexplained(&table) < 1e-9);
    }

    #[test]
    fn what_is_left_is_in_units_of_the_errors() {
        let rows = [row([1.0, 0.0, 0.0], 0.5), row([0.0, 0.0, 0.0], 0.5)];
        let table: Vec<&[Observation]> = rows.iter().map(Vec::as_slice).collect();
        // In a table of two by three, 1/3 of a single square remains, here of (1 / 0.5)^2.
        assert!((unexplained(&table) - 4.0 / 3.0).abs() < 1e-9, "{}", unexplained(&table));
    }
}
