//! Finds a step time that changes for good after many equal steps, and tells it from warm-up, trends and noise.

use super::observation::Observation;
use crate::model::StepChange;
use crate::probe::stats;

/// A change, and the place of the first observation after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    pub(super) place: usize,
    pub(super) change: StepChange,
}

/// The fewest observations and the shortest time on each side of a change: round numbers. Warm-up is shorter.
const FEWEST: usize = 30;
const SHORTEST: f64 = 0.5;

/// Returns the lasting change of the step time among the observations in `regular`, if there is one.
///
/// Times are without waits for data, which change when a loader's queue is used up. The place of the change is the split with the least
/// squares. It counts if the times hardly overlap, and each side is flat: a trend has no place.
pub(super) fn lasting(observations: &[Observation], regular: &[usize]) -> Option<Found> {
    /// The least relative change that matters: a round number, well above the difference of two processes of one config.
    const LEAST: f64 = 0.1;
    /// The share of the times at each end that may overlap.
    const TAIL: f64 = 0.1;
    /// The most that the halves of a side may differ, as a share of the change: a straight trend has a half.
    const FLAT: f64 = 0.25;
    if regular.len() < 2 * FEWEST {
        return None;
    }
    let times: Vec<f64> = regular.iter().map(|&at| own_time(&observations[at])).collect();
    let split = best_split(&times)?;
    let (before, after) = times.split_at(split);
    let lasts = |places: &[usize]| places.iter().map(|&at| observations[at].work.seconds).sum::<f64>() >= SHORTEST;
    if !lasts(&regular[..split]) || !lasts(&regular[split..]) {
        return None;
    }
    let (before_s, after_s) = (stats::median(before)?, stats::median(after)?);
    let by = (after_s - before_s).abs();
    let is_flat = |side: &[f64]| {
        let (one, other) = side.split_at(side.len() / 2);
        stats::median(one).zip(stats::median(other)).is_some_and(|(one, other)| (one - other).abs() <= FLAT * by)
    };
    let (low, high) = if before_s < after_s { (before, after) } else { (after, before) };
    let is_apart = quantile(low, 1.0 - TAIL) < quantile(high, TAIL);
    if by < LEAST * before_s.min(after_s) || !is_apart || !is_flat(before) || !is_flat(after) {
        return None;
    }
    let place = regular[split];
    let earlier = &observations[..place];
    let steps: u64 = earlier.iter().map(|step| step.steps).sum();
    let amount = earlier.iter().map(|step| step.work.amount).sum();
    Some(Found { place, change: StepChange { steps: count(steps), amount, before_s, after_s } })
}

/// Returns the seconds of a step without its wait for data.
fn own_time(step: &Observation) -> f64 {
    (step.work.seconds - step.waited).max(0.0) / count(step.steps)
}

/// Returns the split with the least squares around the means of both sides. Numbers are limited to three times the median, so that no
/// single step decides.
fn best_split(times: &[f64]) -> Option<usize> {
    const MOST: f64 = 3.0;
    let most = stats::median(times)? * MOST;
    let times: Vec<f64> = times.iter().map(|time| time.min(most)).collect();
    let all: f64 = times.iter().sum();
    let (mut sum, mut best) = (0.0, None);
    for (at, time) in times.iter().enumerate() {
        let (before, after) = (count(at as u64), count((times.len() - at) as u64));
        if at >= FEWEST && times.len() - at >= FEWEST {
            // The squares between the sides: with the squares around the means, they add up to a constant.
            let between = sum * sum / before + (all - sum) * (all - sum) / after;
            if best.is_none_or(|(largest, _)| between > largest) {
                best = Some((between, at));
            }
        }
        sum += time;
    }
    best.map(|(_, at)| at)
}

fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
    let place = (count(sorted.len() as u64 - 1) * share).round() as usize;
    sorted[place]
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::measuring::observation::Before;
    use crate::probe::stats::Work;
    use crate::probe::stats::simulation::{Process, Random};

    /// Finds the change in a series of step times and waits.
    fn found(times: impl IntoIterator<Item = (f64, f64)>) -> Option<Found> {
        let mut at = 0.0;
        let observations: Vec<Observation> = times
            .into_iter()
            .map(|(seconds, waited)| {
                at += seconds;
                Observation {
                    at,
                    work: Work { amount: 8.0, seconds },
                    waited,
                    mark: None,
                    before: Before::default(),
                    steps: 1,
                }
            })
            .collect();
        lasting(&observations, &Vec::from_iter(0..observations.len()))
    }

    /// Returns noisy steps of a usual time.
    fn noisy(usual: impl Fn(usize) -> f64, count: usize, random: &mut Random) -> Vec<(f64, f64)> {
        let noise = Process::LogNormal(0.3).times(count, random);
        noise.into_iter().enumerate().map(|(at, noise)| (usual(at) * noise, 0.0)).collect()
    }

    #[test]
    fn a_second_phase_is_found_with_its_place() {
        let mut random = Random(1);
        for (before, after) in [(0.01, 0.03), (0.03, 0.01)] {
            let times = noisy(|at| if at < 150 { before } else { after }, 300, &mut random);
            let Found { place, change } = found(times).unwrap();
            assert!(place.abs_diff(150) <= 2 && (change.steps - 150.0).abs() <= 2.0, "{change:?}");
            assert!((change.before_s / before - 1.0).abs() < 0.1 && (change.after_s / after - 1.0).abs() < 0.1);
            assert!((change.amount - change.steps * 8.0).abs() < 1e-9);
        }
    }

    #[test]
    fn neither_noise_nor_warm_up_nor_a_trend_is_a_phase() {
        let mut random = Random(2);
        for _ in 0..50 {
            assert_eq!(found(noisy(|_| 0.02, 300, &mut random)), None);
        }
        assert_eq!(found(noisy(|at| if at < 20 { 0.1 } else { 0.02 }, 300, &mut random)), None, "warm-up");
        assert_eq!(found((0..300).map(|at| (0.02 + 0.0002 * f64::from(at), 0.0))), None, "a trend");
        assert_eq!(found((0..300).map(|at| (if at % 100 < 50 { 0.02 } else { 0.06 }, 0.0))), None, "there and back");
        let short = (0..300).map(|at| (if at < 100 { 0.001 } else { 0.01 }, 0.0));
        assert_eq!(found(short), None, "a tenth of a second");
    }

    #[test]
    fn a_queue_of_a_loader_that_is_used_up_is_no_phase() {
        assert_eq!(found((0..300).map(|at| if at < 100 { (0.02, 0.0) } else { (0.06, 0.04) })), None);
    }
}
