//! Finds the end of warm-up.
//!
//! Two tests follow each other, because different parts of a step end their warm-up at different times. Steps do not always get
//! faster: compiling and autotuning make the first steps slow, but a queue that was filled during start-up makes them fast.
//!
//! 1. MSER-5 (White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69(6),
//!    1997; Franklin and White, "Stationarity tests and MSER-5", Winter Simulation Conference 2008). It divides the
//!    series into groups of five numbers. It drops groups from the start until the mean of the remaining numbers has
//!    the smallest standard error, but at most half of the series. In a short series each number is its own group.
//! 2. A change of level in the remaining series: the likelihood-ratio test for one change at an unknown place over batch means
//!    (Worsley, "On the likelihood ratio test for a shift in location of normal populations", JASA 74(366), 1979). It repeats until
//!    the first half has no change.
//!
//! Both tests assume independent numbers. If neighbours are correlated, the thresholds grow with the standard error.

use super::shape::period;
use super::{count, median};

/// The smallest relative change of level that is worth a cut: a round number, half of the default relative width.
const SMALLEST: f64 = 0.01;

/// Returns how many numbers at the start of a series are warm-up; at most half of them.
///
/// Numbers above `largest` are replaced by `largest`: they are isolated, such as the time of a checkpoint or an
/// evaluation. The first test also limits numbers to six median deviations. Without these limits, a single isolated
/// number could move the cut behind it.
pub fn warmup_length(series: &[f64], largest: f64) -> usize {
    /// The minimum length of a series with warm-up: a round number.
    const SHORTEST: usize = 4;
    let Some(middle) = median(series).filter(|_| series.len() >= SHORTEST) else { return 0 };
    let deviations: Vec<f64> = series.iter().map(|number| (number - middle).abs()).collect();
    // If most numbers are equal, their deviation is zero. So numbers within 0.6% of the median always stay.
    let reach = 6.0 * median(&deviations).unwrap_or(0.0).max(middle.abs() * 1e-3);
    let within = |low: f64, high: f64| series.iter().map(|number| number.clamp(low, high)).collect::<Vec<f64>>();
    let longest = series.len() / 2;
    let near = within(middle - reach, (middle + reach).min(largest.max(middle)));
    let levels = within(f64::NEG_INFINITY, largest);
    let by_near = smallest_error(&near).min(longest);
    let by_level = smallest_error(&levels).min(longest);
    let mut cut = 0;
    if is_unlikely(&near[..by_near], &near[by_near..]) && is_large(&levels[..by_near], &levels[by_near..]) {
        cut = by_near;
    }
    // The limit of six deviations hides very slow first steps if the other steps are noisy. So the first test is
    // repeated without this limit. It leaves out the largest number, because a single slow step is not warm-up.
    let without_one = without_largest(&levels[..by_level]);
    let rest = &levels[by_level..];
    if by_level > cut && is_unlikely(&without_one, rest) && is_large(&without_one, rest) {
        cut = by_level;
    }
    while cut < longest {
        match level_change(&levels[cut..]) {
            Some(change) if cut + change <= longest => cut += change,
            // If the level changes in the second half, the end of warm-up is unknown.
            Some(_) => return longest,
            None => break,
        }
    }
    cut
}

/// Returns the cut with the smallest standard error of the remaining mean (MSER-5).
fn smallest_error(series: &[f64]) -> usize {
    /// Numbers in a batch, and the shortest series that is batched: ten batches.
    const BATCH: usize = 5;
    const BATCHED: usize = 50;
    let size = if series.len() < BATCHED { 1 } else { BATCH };
    let means: Vec<f64> = series.chunks_exact(size).map(mean).collect();
    let middle = median(&means).unwrap_or(0.0);
    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, 0));
    for cut in (0..means.len()).rev() {
        let number = means[cut] - middle;
        sum += number;
        squares += number * number;
        let rest = count(means.len() - cut);
        let score = (squares - sum * sum / rest).max(0.0) / (rest * rest);
        if cut <= means.len() / 2 && score <= best.0 {
            best = (score, cut);
        }
    }
    best.1 * size
}

/// Returns true if chance does not explain the distance of the first numbers from the rest.
///
/// Even in a series without warm-up, the cut with the smallest standard error is usually not at the start. Such a cut
/// would be needless, and its random place would make the mean less certain.
fn is_unlikely(start: &[f64], rest: &[f64]) -> bool {
    /// Three standard errors: chance exceeds them in 0.3% of cases if the numbers are normal.
    const DEVIATIONS: f64 = 3.0;
    if start.is_empty() {
        return false;
    }
    let level = mean(rest);
    let residuals: Vec<f64> = rest.iter().map(|number| number - level).collect();
    let variance = residuals.iter().map(|residual| residual * residual).sum::<f64>() / count(rest.len());
    (mean(start) - level).abs() > DEVIATIONS * (variance * inflation(&residuals) / count(start.len())).sqrt()
}

/// Returns the factor by which the correlation of neighbours enlarges the variance of a mean.
///
/// If neighbouring steps are similar, a series has slow and fast stretches. A cut at the end of a stretch would be
/// wrong, because the stretch is not warm-up. The factor raises the thresholds of both tests.
fn inflation(residuals: &[f64]) -> f64 {
    /// The strongest correlation that is assumed: a higher correlation would hide every change of level. A round number.
    const STRONGEST: f64 = 0.9;
    let products: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let found = if squares > 0.0 { products / squares } else { 0.0 };
    // Around the mean of a short series, a measured correlation is too low by (1 + 4 r) / n. Here r is the true
    // correlation (Kendall, "Note on bias in the estimation of autocorrelation", Biometrika 41, 1954). For up to five
    // numbers, the divisor stays at 0.2.
    let number = count(residuals.len().max(1));
    let correlation = ((found + 1.0 / number) / (1.0 - 4.0 / number).max(0.2)).clamp(0.0, STRONGEST);
    (1.0 + correlation) / (1.0 - correlation)
}

/// Returns the numbers without the largest, unless the largest is the first: a single large number later on is not warm-up.
fn without_largest(start: &[f64]) -> Vec<f64> {
    let largest = (0..start.len()).max_by(|&a, &b| start[a].total_cmp(&start[b])).filter(|&at| at > 0);
    (0..start.len()).filter(|&at| Some(at) != largest).map(|at| start[at]).collect()
}

/// Returns true if the level at the start differs enough to be worth a cut.
fn is_large(start: &[f64], rest: &[f64]) -> bool {
    !start.is_empty() && (mean(start) - mean(rest)).abs() > SMALLEST * mean(rest).abs()
}

/// Returns the place of a change of level, by the second test.
fn level_change(series: &[f64]) -> Option<usize> {
    /// The maximum number of batches, and the minimum number of batches on each side of a change, because the level of
    /// a single batch is unreliable.
    const BATCHES: usize = 25;
    const FEWEST: usize = 2;
    /// The 1% point of the largest t statistic over all places, for about twenty normal numbers (Worsley, table 1).
    const CRITICAL: f64 = 3.8;
    // The size is a multiple of the period of bursts, so that each batch has the same number of bursts.
    let size = series.len().div_ceil(BATCHES).next_multiple_of(period(series).unwrap_or(1));
    let skipped = series.len() % size;
    let means: Vec<f64> = series[skipped..].chunks_exact(size).map(mean).collect();
    if means.len() < 4 * FEWEST {
        return None;
    }
    let total: f64 = means.iter().sum();
    let squares: f64 = means.iter().map(|mean| mean * mean).sum();
    let (mut head, mut largest) = (0.0, (0.0, 0));
    for place in 1..means.len() {
        head += means[place - 1];
        if place < FEWEST || means.len() - place < FEWEST {
            continue;
        }
        let (left, right) = (count(place), count(means.len() - place));
        let (before, after) = (head / left, (total - head) / right);
        let within = (squares - left * before * before - right * after * after).max(0.0) / (left + right - 2.0);
        let change = (before - after).abs();
        let score = change / (within * (1.0 / left + 1.0 / right)).sqrt().max(f64::MIN_POSITIVE);
        if change >= SMALLEST * after.abs() && score > largest.0 {
            largest = (score, place);
        }
    }
    let (score, place) = largest;
    let levels = means.split_at(place);
    let residuals: Vec<f64> =
        [levels.0, levels.1].into_iter().flat_map(|part| part.iter().map(|number| number - mean(part))).collect();
    (score > CRITICAL * inflation(&residuals).sqrt()).then_some(skipped + place * size)
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / count(numbers.len())
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Process, Random};
    use super::*;

    const ANY: f64 = f64::INFINITY;

    #[test]
    fn slow_first_steps_are_warm_up() {
        let mut series = vec![5.0, 2.0, 1.3];
        series.extend((0..40).map(|step| 1.0 + 0.01 * f64::from(step % 3)));
        assert_eq!(warmup_length(&series, ANY), 3);
        // They also show in a noisy series.
        let mut random = Random(4);
        for _ in 0..100 {
            let mut series = Process::LogNormal(0.3).times(123, &mut random);
            series[..3].iter_mut().for_each(|number| *number = 60.0);
            assert!(warmup_length(&series, ANY) >= 3);
        }
    }

    #[test]
    fn a_change_of_level_is_found_within_a_batch() {
        for (length, change, level) in [(60, 12, 0.8), (200, 40, 1.2), (1000, 300, 0.95)] {
            let mut series = Process::Independent(0.02).times(length, &mut Random(1));
            series[..change].iter_mut().for_each(|number| *number *= level);
            let cut = warmup_length(&series, ANY);
            assert!(cut + 1 >= change && cut <= change + length / 10, "{length}, {change}: {cut}");
        }
        let series: Vec<f64> = (0..100).map(|at| if at < 70 { 1.0 } else { 2.0 } + 0.01 * f64::from(at % 3)).collect();
        assert_eq!(warmup_length(&series, ANY), 50, "after a change in the second half, the end of warm-up is unknown");
    }

    #[test]
    fn a_steady_series_keeps_almost_all_and_a_hiccup_does_not_cut() {
        let mut series: Vec<f64> = (0..40).map(|step| 1.0 + 0.01 * f64::from(step * 7 % 5)).collect();
        assert_eq!(warmup_length(&series, ANY), 0);
        series[15] = 50.0;
        assert_eq!(warmup_length(&series, ANY), 0);
        assert_eq!(warmup_length(&[1.0; 30], ANY), 0);
        assert_eq!(warmup_length(&[9.0, 1.0, 1.0], ANY), 0, "too few to tell");
    }

    #[test]
    fn chance_alone_hardly_ever_cuts() {
        let mut random = Random(2);
        for process in [Process::Independent(0.1), Process::LogNormal(0.5), Process::Bursts(8, 0.1)] {
            let cut = (0..200).filter(|_| warmup_length(&process.times(100, &mut random), ANY) > 0).count();
            assert!(cut <= 20, "{process:?}: {cut}");
        }
    }
}
