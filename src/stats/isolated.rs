//! Numbers that have nothing to do with the rest: a checkpoint among steps, a pause of the whole machine.

/// Above which number the few largest of a series are isolated; `None` where none are.
///
/// They are at most one in fifty, and between them and the rest is a gap: the least of them is three times the largest
/// of the rest. Rare and far away alone is not enough, a long tail has such numbers too, and a mean without them would
/// be wrong: it has no gap. And they come at irregular distances: what comes regularly is a burst of a loader with many
/// workers, and part of the rate.
pub fn isolated_above(series: &[f64]) -> Option<f64> {
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

/// Whether the distances between places vary by less than a quarter.
fn is_regular(places: &[usize]) -> bool {
    const FEWEST: usize = 3;
    let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
    let (Some(least), Some(most)) = (gaps.clone().min(), gaps.max()) else { return false };
    places.len() >= FEWEST && most * 4 <= least * 5
}
