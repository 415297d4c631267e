//! Where warm-up ends.
//!
//! Two tests, one after the other, because what a step warms up ends at different times, and not always downwards:
//! compiling and autotuning make the first steps slow, a queue that was filled during start-up makes them fast.
//!
//! 1. MSER-5 (White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69(6),
//!    1997; Franklin and White, "Stationarity tests and MSER-5", Winter Simulation Conference 2008): of the means of
//!    five drop as many as make the standard error of the mean of the rest smallest, at most half of the series. In
//!    a series too short for that, single numbers take their place.
//! 2. A change of level in what is left, by the likelihood-ratio test for one change at an unknown place over batch
//!    means (Worsley, "On the likelihood ratio test for a shift in location of normal populations", JASA 74(366),
//!    1979), repeated until there is none in the first half.

use super::median;

/// A smaller change of the level, as a share, is not worth the numbers that a cut costs.
const SMALLEST: f64 = 0.01;

/// How many numbers at the start of a series are warm-up; at most half of them.
///
/// Numbers above `largest` have nothing to do with the rest, and count as no larger. For the first test the same holds of
/// numbers beyond six median deviations: a single one, a checkpoint or an evaluation, must not pull the cut behind it.
pub fn warmup_length(series: &[f64], largest: f64) -> usize {
    const SHORTEST: usize = 4;
    let Some(middle) = median(series).filter(|_| series.len() >= SHORTEST) else { return 0 };
    let deviations: Vec<f64> = series.iter().map(|number| (number - middle).abs()).collect();
    let reach = 6.0 * median(&deviations).unwrap_or(0.0).max(middle.abs() * 1e-3);
    let within = |low: f64, high: f64| series.iter().map(|number| number.clamp(low, high)).collect::<Vec<f64>>();
    let longest = series.len() / 2;
    let mut cut = smallest_error(&within(middle - reach, (middle + reach).min(largest.max(middle)))).min(longest);
    let levels = within(f64::NEG_INFINITY, largest);
    while cut < longest {
        match level_change(&levels[cut..]) {
            Some(change) if cut + change <= longest => cut += change,
            // What changed later than half way is no warm-up that is known to be over.
            Some(_) => return longest,
            None => break,
        }
    }
    cut
}

/// The cut of MSER-5, in numbers of the series.
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
    let cut = best.1 * size;
    if differs(&series[..cut], &series[cut..]) { cut } else { 0 }
}

/// Whether numbers at the start are so far from the rest that chance does not explain it.
///
/// The smallest standard error is somewhere behind the start more often than not; a cut for nothing makes the mean depend
/// on chance once more.
fn differs(start: &[f64], rest: &[f64]) -> bool {
    const DEVIATIONS: f64 = 3.0;
    if start.is_empty() {
        return false;
    }
    let level = mean(rest);
    let variance = rest.iter().map(|number| (number - level).powi(2)).sum::<f64>() / count(rest.len());
    let difference = (mean(start) - level).abs();
    difference > DEVIATIONS * (variance / count(start.len())).sqrt() && difference > SMALLEST * level.abs()
}

/// Where the level of a series changes, if it does.
fn level_change(series: &[f64]) -> Option<usize> {
    /// Batches, and the fewest on a side: the level of one alone may be anything.
    const BATCHES: usize = 20;
    const FEWEST: usize = 2;
    /// The 1 % point of the largest of the t statistics over all places in twenty normal numbers (Worsley, table 1).
    const CRITICAL: f64 = 3.8;
    let size = series.len().div_ceil(BATCHES);
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
    (largest.0 > CRITICAL).then_some(skipped + largest.1 * size)
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / count(numbers.len())
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}
