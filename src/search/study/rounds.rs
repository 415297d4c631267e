//! Confirmations compared round by round, so that what changes the whole machine from one round to the next cancels.
//!
//! The leaders and the baseline are measured again in rounds, each of them once in each. A machine that slows down as it
//! warms up makes all of a round slower: differences within a round do not show it. The noise that is left is what a
//! model with a level for each config and one for each round cannot explain, on the scale of the trials' own errors
//! (Birge's ratio, pooled over all configs, since rounds are few).

use super::{Ranked, Spread};
use crate::probe::stats::{self, Observation};

/// What rounds of confirmations say about noise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds {
    spread: Spread,
}

impl Rounds {
    /// The noise within rounds; `None` where there are too few to tell it from chance.
    pub(super) fn of(ranking: &[Ranked]) -> Option<Self> {
        /// With one degree of freedom an interval is three times as wide as with two, and says nothing.
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

    /// The mean difference between two configs over the rounds of both, with half the width of an interval that leaves out
    /// so much probability at each end.
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

/// The squares, in units of the errors, that are left of a table of configs by rounds when each config and each round has
/// its level: weighted least squares, by fitting one after the other until nothing changes.
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
        // A two by three table leaves 1/3 of a single square, here of (1 / 0.5)^2.
        assert!((unexplained(&table) - 4.0 / 3.0).abs() < 1e-9, "{}", unexplained(&table));
    }
}
