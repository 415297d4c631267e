//! Finds three shapes of a series: isolated numbers, a period and a trend. Isolated numbers come from a checkpoint or a
//! pause of the machine. A period comes from a loader whose workers deliver in bursts. A trend comes from sorted data
//! or a cache that fills.

use super::{count, mean, median};

/// Finds the value above which the numbers of a series are isolated; `None` without isolated numbers.
///
/// Isolated numbers meet three conditions. First, they are at most one in fifty. Second, the smallest is at least three
/// times the largest of the rest. Without this gap, large numbers are a long tail, and a mean without them would be
/// wrong. Third, they come at irregular distances. Large numbers at regular distances are the bursts of a loader with
/// many workers, and part of the rate.
pub fn isolated_above(series: &[f64]) -> Option<f64> {
    // With these round numbers, at most 2% of series with a long tail (log-normal, 0.7) have isolated numbers.
    const SHARE: usize = 50;
    const GAP: f64 = 3.0;
    let most = series.len() / SHARE;
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() - most..sorted.len()).find(|&place| sorted[place] >= GAP * sorted[place - 1])?;
    let bound = sorted[place - 1];
    let places: Vec<usize> = (0..series.len()).filter(|&at| series[at] > bound).collect();
    (!is_regular(&places)).then_some(bound)
}

/// Returns true if the largest distance between neighbouring places is at most a quarter more than the smallest.
fn is_regular(places: &[usize]) -> bool {
    /// The fewest places that can be regular: they have two distances.
    const FEWEST: usize = 3;
    let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
    let (Some(least), Some(most)) = (gaps.clone().min(), gaps.max()) else { return false };
    places.len() >= FEWEST && most * 4 <= least * 5
}

/// Returns the number of steps after which the series repeats: the shortest lag at which numbers are far more similar than
/// neighbours are. The series must contain that period at least eight times.
pub(super) fn period(series: &[f64]) -> Option<usize> {
    /// The longest period: the bursts of 64 workers.
    const LONGEST: usize = 64;
    // Round numbers, with which a random series has no period.
    const FEWEST: usize = 8;
    const LOOKED_AT: usize = 1024;
    const ALIKE: f64 = 0.5;
    let series = &series[series.len().saturating_sub(LOOKED_AT)..];
    let mean = mean(series)?;
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

/// Returns the time of a step in the last part of a series divided by its time in the first part. Returns `None` unless
/// the parts become slower and slower, or faster and faster.
pub(in crate::probe::measuring) fn trend(times: &[f64]) -> Option<f64> {
    /// The number of parts. By chance, six parts become only slower or only faster in one of 360 series.
    const PARTS: usize = 6;
    /// The fewest steps of a part: a round number.
    const FEWEST: usize = 8;
    /// The least change of the time, as a ratio: a round number.
    const LEAST: f64 = 1.2;
    /// The largest share of the change between two parts, as a sudden change is no trend: a round number.
    const MOST: f64 = 0.7;
    let part = times.len() / PARTS;
    if part < FEWEST {
        return None;
    }
    let medians: Vec<f64> = times.chunks(part).take(PARTS).filter_map(median).collect();
    let ratio = medians.last()? / medians.first()?;
    let changes: Vec<f64> = medians.windows(2).map(|pair| (pair[1] / pair[0]).ln() / ratio.ln()).collect();
    let is_steady = changes.iter().all(|change| (0.0..MOST).contains(change));
    (is_steady && ratio.max(1.0 / ratio) >= LEAST).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Process, Random};
    use super::*;

    fn noise(count: usize, seed: u64) -> Vec<f64> {
        Process::Independent(0.05).times(count, &mut Random(seed))
    }

    #[test]
    fn a_few_far_away_are_isolated_and_many_or_near_or_regular_ones_or_a_long_tail_are_not() {
        let above = |times: &[(usize, f64)], length: usize| {
            let mut series = noise(length, 1);
            times.iter().for_each(|&(at, time)| series[at] = time);
            isolated_above(&series)
        };
        let bound = above(&[(30, 20.0), (111, 5.0)], 150).unwrap();
        assert!((1.0..1.3).contains(&bound), "{bound}");
        assert_eq!(above(&[(3, 9.0)], 40), None, "one of forty may be one of many");
        assert_eq!(above(&[(30, 2.0)], 150), None, "twice as long is not far away");
        let bursts: Vec<(usize, f64)> = (0..5).map(|at| (at * 64 + 7, 30.0)).collect();
        assert_eq!(above(&bursts, 320), None, "every 64th");
        assert_eq!(isolated_above(&[]), None);
        let mut random = Random(3);
        let cut = (0..200).filter(|_| isolated_above(&Process::LogNormal(0.7).times(300, &mut random)).is_some());
        assert!(cut.count() <= 4);
    }

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

    #[test]
    fn only_a_steady_change_is_a_trend() {
        let with = |shape: fn(f64) -> f64| {
            let times = noise(300, 7).into_iter().enumerate();
            trend(&times.map(|(at, time)| time * shape(at as f64 / 300.0)).collect::<Vec<f64>>())
        };
        let slower = with(|place| 1.0 + place).unwrap();
        assert!((1.6..2.0).contains(&slower), "{slower}");
        assert!(with(|place| 2.0 - place).unwrap() < 0.7);
        assert_eq!(with(|place| 1.0 + place / 10.0), None, "too little");
        assert_eq!(with(|place| if place < 0.5 { 1.0 } else { 2.0 }), None, "two levels");
        assert_eq!(with(|place| 1.0 + (place - 0.5).abs()), None, "there and back");
        assert_eq!(trend(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), None, "too few");
        assert!((0..200).all(|seed| trend(&noise(300, seed)).is_none()));
    }
}
