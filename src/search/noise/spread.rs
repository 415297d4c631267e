//! Estimates the variance between runs from what was repeated.
//!
//! The estimate is that of Paule and Mandel ("Consensus values and weighting factors", Journal of Research of the National
//! Bureau of Standards 87(5), 1982): the variance with which the weighted squares of what the levels do not explain add up
//! to their degrees of freedom. It is taken over all configs together, since their runs differ by about the same share.
//! A prior counts as so many further squares. Where the runs then still differ more than that explains, their intervals are
//! widened by the factor of Hartung and Knapp ("On tests of the overall treatment effect in meta-analysis with normally
//! distributed responses", Statistics in Medicine 20(12), 2001), which is never below one.

use std::collections::BTreeMap;

use super::{NoisePrior, Run, Variance};

/// Returns the factor, at most one, by which the variances within runs are too large: repetitions that agree far better than these
/// allow show that.
///
/// The error of a short run whose steps are alike for some time can hardly be told, and its interval then covers the worst. If runs
/// with such intervals agree, their errors were not as bad. The factor is the largest that the agreement allows with 95 %: by
/// luck alone a few repetitions agree, too.
pub(super) fn overstated(configs: &[&[Run]]) -> f64 {
    let repeated = configs.iter().filter(|runs| runs.len() > 1);
    let cells = repeated.enumerate().flat_map(|(config, runs)| runs.iter().map(move |run| Cell::of(run, config, None)));
    let cells: Vec<Cell> = cells.collect();
    if cells.iter().any(|cell| cell.variance <= 0.0) {
        return 1.0;
    }
    let table = Table::of(cells);
    if table.degrees < 2 {
        return 1.0;
    }
    (table.squares(0.0) / low_chi_square(table.degrees)).min(1.0)
}

/// Returns the number that a sum of squares of this many standard normal variables falls below with a probability of 5 %: Wilson and
/// Hilferty, "The distribution of chi-square", PNAS 17(12), 1931.
fn low_chi_square(degrees: usize) -> f64 {
    /// The 95 % quantile of the normal distribution.
    const QUANTILE: f64 = 1.645;
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let degrees = degrees as f64;
    let part = 2.0 / (9.0 * degrees);
    degrees * (1.0 - part - QUANTILE * part.sqrt()).max(0.0).powi(3)
}

/// The run noise where each config has its own level.
pub(super) fn between_runs(configs: &[&[Run]], prior: NoisePrior) -> Option<Variance> {
    let repeated = configs.iter().filter(|runs| runs.len() > 1);
    let cells = repeated.enumerate().flat_map(|(config, runs)| runs.iter().map(move |run| Cell::of(run, config, None)));
    Table::of(cells.collect()).variance(prior)
}

/// The run noise where each config and each round has its own level.
pub(super) fn within_rounds(configs: &[&[Run]], prior: NoisePrior) -> Option<Variance> {
    let mut rounds: BTreeMap<u32, usize> = BTreeMap::new();
    let mut cells = Vec::new();
    for (config, runs) in configs.iter().enumerate() {
        for run in *runs {
            let Some(round) = run.round else { continue };
            let next = rounds.len();
            cells.push(Cell::of(run, config, Some(*rounds.entry(round).or_insert(next))));
        }
    }
    Table::of(cells).variance(prior)
}

/// A run, with the places of its levels.
#[derive(Debug, Clone, Copy)]
struct Cell {
    value: f64,
    /// The variance within the run.
    variance: f64,
    config: usize,
    round: Option<usize>,
}

impl Cell {
    fn of(run: &Run, config: usize, round: Option<usize>) -> Self {
        let error = if round.is_some() { run.beside } else { run.error };
        Self { value: run.value, variance: error * error, config, round }
    }
}

/// Runs whose levels are fitted together.
struct Table {
    cells: Vec<Cell>,
    /// The runs of each level: of configs, then of rounds.
    levels: Vec<Vec<usize>>,
    degrees: usize,
}

impl Table {
    fn of(cells: Vec<Cell>) -> Self {
        let mut places: BTreeMap<(bool, usize), Vec<usize>> = BTreeMap::new();
        for (at, cell) in cells.iter().enumerate() {
            places.entry((false, cell.config)).or_default().push(at);
            if let Some(round) = cell.round {
                places.entry((true, round)).or_default().push(at);
            }
        }
        let degrees = cells.len() - free_levels(&cells);
        Self { cells, levels: places.into_values().collect(), degrees }
    }

    /// Returns the variance between runs; `None` where there is neither a repetition nor a prior.
    fn variance(&self, prior: NoisePrior) -> Option<Variance> {
        /// The smallest and the largest variance that is looked for: a ten millionth, and a factor of e to the fourth.
        const RANGE: (f64, f64) = (1e-14, 16.0);
        /// Halvings of the range's logarithm, which leave less than a millionth of it.
        const HALVINGS: usize = 60;
        let degrees = self.degrees + prior.degrees as usize;
        if degrees == 0 {
            return None;
        }
        let prior_squares = f64::from(prior.degrees) * prior.deviation * prior.deviation;
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let is_too_small = |variance: f64| self.squares(variance) + prior_squares / variance > degrees as f64;
        let (mut low, mut high) = (RANGE.0.ln(), RANGE.1.ln());
        if !is_too_small(RANGE.0) {
            // What the runs' own errors explain needs no variance between them.
            return Some(self.widened(0.0, degrees));
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if is_too_small(middle.exp()) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(self.widened(high.exp(), degrees))
    }

    fn widened(&self, between: f64, degrees: usize) -> Variance {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let factor = if self.degrees > 0 && between > 0.0 { self.squares(between) / self.degrees as f64 } else { 1.0 };
        Variance { value: between, factor: factor.max(1.0), degrees }
    }

    /// Returns the weighted squares of what levels do not explain, if runs differ with this variance.
    fn squares(&self, between: f64) -> f64 {
        /// The most sweeps, and the change that is none. Levels of one kind are fitted at once; those of two kinds one after
        /// the other, each sweep leaving a part of what is not yet fitted.
        const SWEEPS: usize = 50;
        const NO_CHANGE: f64 = 1e-10;
        let weight = |cell: &Cell| (cell.variance + between).recip();
        let mut residuals: Vec<f64> = self.cells.iter().map(|cell| cell.value).collect();
        for _ in 0..SWEEPS {
            let mut largest = 0.0_f64;
            for members in &self.levels {
                let total: f64 = members.iter().map(|&at| weight(&self.cells[at])).sum();
                let change = members.iter().map(|&at| weight(&self.cells[at]) * residuals[at]).sum::<f64>() / total;
                members.iter().for_each(|&at| residuals[at] -= change);
                largest = largest.max(change.abs());
            }
            if largest < NO_CHANGE {
                break;
            }
        }
        self.cells.iter().zip(&residuals).map(|(cell, residual)| weight(cell) * residual * residual).sum()
    }
}

/// Counts the levels that are fitted: configs and rounds, less one for each group that hangs together, since there a
/// constant may be moved from one kind to the other.
fn free_levels(cells: &[Cell]) -> usize {
    let mut nodes: BTreeMap<(bool, usize), usize> = BTreeMap::new();
    for cell in cells {
        for node in [Some((false, cell.config)), cell.round.map(|round| (true, round))].into_iter().flatten() {
            let next = nodes.len();
            nodes.entry(node).or_insert(next);
        }
    }
    let mut group: Vec<usize> = (0..nodes.len()).collect();
    let (mut joined, mut has_rounds) = (0, 0);
    for cell in cells {
        let Some(round) = cell.round else { continue };
        let (a, b) = (group[nodes[&(false, cell.config)]], group[nodes[&(true, round)]]);
        if a != b {
            group.iter_mut().filter(|group| **group == b).for_each(|group| *group = a);
            joined += 1;
        }
        has_rounds = 1;
    }
    // Joining n nodes into g groups takes n - g steps, so the levels that count are the joins and one for each group of
    // rounds; without rounds they are the configs.
    if has_rounds == 0 { nodes.len() } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(values: &[f64], error: f64, first_round: Option<u32>) -> Vec<Run> {
        let round = |at: u32| first_round.map(|first| first + at);
        (0..).zip(values).map(|(at, &value)| Run::alone(value, error, round(at))).collect()
    }

    #[test]
    fn without_errors_it_is_the_ordinary_variance_with_the_prior_as_further_squares() {
        let (a, b) = (runs(&[1.0, 1.2, 1.1], 0.0, None), runs(&[3.0, 3.2], 0.0, None));
        let squares = 0.02 + 0.02;
        let alone = between_runs(&[&a, &b], NoisePrior::NONE).unwrap();
        assert_eq!(alone.degrees, 3);
        assert!((alone.value - squares / 3.0).abs() < 1e-9, "{alone:?}");
        let with = between_runs(&[&a, &b], NoisePrior::RATE).unwrap();
        assert_eq!(with.degrees, 5);
        assert!((with.value - (squares + 2.0 * 0.03 * 0.03) / 5.0).abs() < 1e-9, "{with:?}");
        assert_eq!(between_runs(&[&a[..1]], NoisePrior::NONE), None);
        let prior = between_runs(&[&a[..1]], NoisePrior::RATE).unwrap();
        assert!((prior.value - 0.0009).abs() < 1e-9);
    }

    #[test]
    fn errors_are_overstated_only_where_runs_agree_far_better() {
        let factor = |spread: f64, error| {
            let of_config = |level: f64| runs(&[level - spread, level + spread], error, None);
            let configs = [of_config(1.0), of_config(2.0), of_config(3.0), of_config(4.0)];
            overstated(&configs.each_ref().map(Vec::as_slice))
        };
        assert_eq!(factor(0.1, 0.1), 1.0);
        assert_eq!(factor(0.05, 0.1), 1.0);
        let agreed = factor(0.01, 0.3);
        assert!((0.005..0.02).contains(&agreed), "{agreed}");
        assert_eq!(overstated(&[&runs(&[1.0, 1.0], 0.5, None)]), 1.0, "two runs agree by luck");
        // Fisher and Yates, table IV: 0.711 for four degrees.
        assert!((low_chi_square(4) - 0.711).abs() < 0.03, "{}", low_chi_square(4));
    }

    #[test]
    fn errors_within_runs_explain_a_part() {
        let spread = |error| between_runs(&[&runs(&[1.0, 1.2, 1.1], error, None)], NoisePrior::NONE).unwrap().value;
        assert!(spread(0.05) < spread(0.0));
        assert_eq!(spread(0.2), 0.0);
    }

    #[test]
    fn what_changes_from_round_to_round_is_no_noise_within_rounds() {
        let drift = [0.0, -0.5, 0.3];
        let rows = [1.0, 7.0, 3.0].map(|level| runs(&drift.map(|change| change + level), 0.0, Some(4)));
        let configs: Vec<&[Run]> = rows.iter().map(Vec::as_slice).collect();
        let within = within_rounds(&configs, NoisePrior::NONE).unwrap();
        assert_eq!(within.degrees, 4);
        assert!(within.value < 1e-9, "{within:?}");
        assert!(between_runs(&configs, NoisePrior::NONE).unwrap().value > 0.1);
    }

    #[test]
    fn degrees_count_what_hangs_together() {
        let cell = |config, round| Cell { value: 0.0, variance: 0.0, config, round: Some(round) };
        // Two configs in two rounds: three levels. A third config alone in a round of its own: one that fits itself.
        let square = vec![cell(0, 0), cell(1, 0), cell(0, 1), cell(1, 1)];
        assert_eq!(Table::of(square.clone()).degrees, 1);
        let with_lone: Vec<Cell> = square.into_iter().chain([cell(2, 2)]).collect();
        assert_eq!(Table::of(with_lone).degrees, 1);
        assert_eq!(Table::of(Vec::new()).degrees, 0);
    }
}
