//! Finds steps that become steadily slower or faster: sorted data, a cache that fills, a schedule of sizes.

use crate::probe::stats;

/// The parts that are compared. Six numbers are in one of two orders by chance in one of 360 series.
const PARTS: usize = 6;

/// The fewest steps of a part, and the least ratio of the last part to the first. Round numbers.
const FEWEST: usize = 8;
const LEAST: f64 = 1.2;

/// The largest share of the change between two parts: a phase with other steps changes all at once. A round number.
const MOST: f64 = 0.7;

/// Returns how many times as long a step takes in the last part as in the first; `None` unless each part is slower, or each is
/// faster, than the part before it.
pub(super) fn trend(times: &[f64]) -> Option<f64> {
    let part = times.len() / PARTS;
    if part < FEWEST {
        return None;
    }
    let medians: Vec<f64> = times.chunks(part).take(PARTS).filter_map(stats::median).collect();
    let ratio = medians.last()? / medians.first()?;
    let changes: Vec<f64> = medians.windows(2).map(|pair| (pair[1] / pair[0]).ln() / ratio.ln()).collect();
    let is_steady = changes.iter().all(|change| (0.0..MOST).contains(change));
    (is_steady && ratio.max(1.0 / ratio) >= LEAST).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::stats::simulation::{Process, Random};

    fn noise(count: usize, seed: u64) -> Vec<f64> {
        Process::Independent(0.05).times(count, &mut Random(seed))
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
