//! Finds a trend in the ratio of two configs over the rounds of a search: a cache fills, or heat slows a device down.

use crate::model::Config;
use crate::probe::stats;
use crate::search::rounds::{Run, paired};

/// The fewest rounds that can show a trend: a round number.
const FEWEST: usize = 8;

/// The probability at each end that a ratio without a trend seems to have one: 1% for both ends.
const TAIL: f64 = 0.005;

/// The smallest change that matters, as a difference of logarithms: a round number. Processes of one config differ by about 2%.
const MATTERS: f64 = 0.05;

/// The ratio of a config to the baseline rose or fell over the rounds, so the mean of all rounds is no result.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    /// The config.
    pub config: Config,
    /// The geometric mean of its ratio to the baseline in the first quarter of the rounds.
    pub from: f64,
    /// The geometric mean of its ratio to the baseline in the last quarter of the rounds.
    pub to: f64,
    /// The number of rounds that have both configs.
    pub rounds: usize,
    /// The number of rounds at the end that count: half of them.
    pub counted: usize,
    /// The first of these rounds.
    since: u32,
}

impl Trend {
    /// Returns the trend of a config's ratio to the baseline, from the logarithms of both rates; `None` without a trend.
    pub(super) fn of(config: &Config, runs: &[Run], baseline: &[Run]) -> Option<Self> {
        let mut pairs: Vec<(u32, f64)> = paired(runs, baseline).map(|(a, b)| (a.round, a.value - b.value)).collect();
        pairs.sort_by_key(|(round, _)| *round);
        let differences: Vec<f64> = pairs.iter().map(|(_, difference)| *difference).collect();
        let rounds = differences.len();
        let quarter = rounds / 4;
        let from = stats::mean(&differences[..quarter])?;
        let to = stats::mean(&differences[rounds - quarter..])?;
        let since = pairs[rounds / 2].0;
        let trend = Self {
            config: config.clone(),
            from: from.exp(),
            to: to.exp(),
            rounds,
            counted: rounds - rounds / 2,
            since,
        };
        (has_trend(&differences) && (to - from).abs() >= MATTERS).then_some(trend)
    }

    /// Returns the runs of the rounds that count.
    pub(super) fn at_the_end(&self, runs: &[Run]) -> Vec<Run> {
        runs.iter().filter(|run| run.round >= self.since).copied().collect()
    }
}

/// Returns true if the values rise or fall (Mann, "Nonparametric tests against trend", 1945; Kendall, "Rank correlation methods",
/// 1975). The test counts in how many pairs the later value is higher, so it needs no model of the noise.
fn has_trend(values: &[f64]) -> bool {
    if values.len() < FEWEST {
        return false;
    }
    let later = |at: usize| values[at + 1..].iter().map(move |second| second - values[at]);
    let changes = (0..values.len()).flat_map(later).filter(|change| *change != 0.0);
    let excess: f64 = changes.map(f64::signum).sum();
    let count = values.len() as f64;
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    // A correction for continuity: the excess changes in steps of two, so the correction is 1.
    excess.abs() - 1.0 > stats::normal_quantile(TAIL) * deviation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::stats::Random;
    use crate::search::tests::numbers;

    fn trend(values: &[f64]) -> Option<Trend> {
        let runs = |values: &[f64]| -> Vec<Run> {
            (1..).zip(values).map(|(round, &value)| Run { value, round, ..Run::default() }).collect()
        };
        let baseline = runs(&vec![0.0; values.len()]);
        Trend::of(&numbers(0, 9).config(0)?, &runs(values), &baseline)
    }

    #[test]
    fn a_ratio_that_falls_has_a_trend_and_only_its_end_counts() {
        let falling: Vec<f64> = (0..12).map(|round| 0.6 - 0.05 * f64::from(round)).collect();
        let found = trend(&falling).unwrap();
        assert_eq!((found.rounds, found.counted, found.since), (12, 6, 7));
        assert!((found.from - 0.55_f64.exp()).abs() < 1e-9 && (found.to - 0.1_f64.exp()).abs() < 1e-9, "{found:?}");
        assert_eq!(trend(&falling[..7]), None, "seven rounds are too few");
        let slight: Vec<f64> = falling.iter().map(|value| value / 20.0).collect();
        assert_eq!(trend(&slight), None, "it is too small to matter");
        assert_eq!(trend(&[0.5, 0.1, 0.5, 0.1, 0.5, 0.1, 0.5, 0.1]), None);
    }

    #[test]
    fn noise_seldom_has_a_trend() {
        const SEARCHES: usize = 1000;
        let mut random = Random(7);
        for rounds in [8, 12, 30] {
            let found = (0..SEARCHES)
                .filter(|_| has_trend(&(0..rounds).map(|_| random.normal()).collect::<Vec<f64>>()))
                .count();
            assert!(found * 40 <= SEARCHES, "{rounds} rounds: {found} of {SEARCHES}");
        }
    }
}
