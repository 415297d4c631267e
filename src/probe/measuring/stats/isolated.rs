//! Finds numbers that do not belong to the rest of a series: a checkpoint among steps, a pause of the whole machine.

/// Finds the value above which the numbers of a series are isolated; `None` without isolated numbers.
///
/// Isolated numbers are at most one in fifty, and a gap separates them from the rest: the smallest is at least three times the
/// largest of the rest. Without a gap, rare and distant numbers are a long tail, and a mean without them would be wrong. Isolated
/// numbers also come at irregular distances. Large numbers at regular distances are the bursts of a loader with many workers, and
/// part of the rate.
pub fn isolated_above(series: &[f64]) -> Option<f64> {
    /// Round numbers with which the tests below pass: at most 2% of series with a long tail (log-normal, 0.7) lose their largest
    /// number.
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

/// Returns true if the distances between places vary by less than a quarter.
fn is_regular(places: &[usize]) -> bool {
    /// The minimum number of places that can be regular: two distances.
    const FEWEST: usize = 3;
    let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
    let (Some(least), Some(most)) = (gaps.clone().min(), gaps.max()) else { return false };
    places.len() >= FEWEST && most * 4 <= least * 5
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Process, Random};
    use super::*;

    fn with(times: &[(usize, f64)], length: usize) -> Vec<f64> {
        let mut series = Process::Independent(0.05).times(length, &mut Random(1));
        times.iter().for_each(|&(at, time)| series[at] = time);
        series
    }

    #[test]
    fn a_few_far_away_are_isolated() {
        let bound = isolated_above(&with(&[(30, 20.0), (111, 5.0)], 150)).unwrap();
        assert!((1.0..1.3).contains(&bound), "{bound}");
    }

    #[test]
    fn many_or_near_or_regular_ones_are_not() {
        assert_eq!(isolated_above(&with(&[(3, 9.0)], 40)), None, "one of forty may be one of many");
        assert_eq!(isolated_above(&with(&[(30, 2.0)], 150)), None, "twice as long is not far away");
        let bursts: Vec<(usize, f64)> = (0..5).map(|at| (at * 64 + 7, 30.0)).collect();
        assert_eq!(isolated_above(&with(&bursts, 320)), None, "every 64th");
        assert_eq!(isolated_above(&[]), None);
    }

    #[test]
    fn a_long_tail_is_not_cut_off() {
        let mut random = Random(3);
        let cut = (0..200).filter(|_| isolated_above(&Process::LogNormal(0.7).times(300, &mut random)).is_some());
        assert!(cut.count() <= 4);
    }
}
