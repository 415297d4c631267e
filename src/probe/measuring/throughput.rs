//! Turns step times into a throughput: drops warm-up, leaves exceptional steps out, and computes the rate of the rest.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::model::{EVALUATION, EpochEnd, Estimate, Outliers, Timing};
use crate::probe::stats::{self, MeanRate, Work};

/// The mark of a step with the end of an epoch. A loader then fills its queue again.
pub(in crate::probe) const EPOCH: &str = "epoch";

/// The marks of steps in which a model was compiled. These steps never count, even if they are many.
const COMPILATIONS: [&str; 2] = ["compile", "recompile"];

/// A mark is an exception if at most a quarter of all steps (one in this many) have it: a round number.
pub(in crate::probe) const RARELY: u64 = 4;

/// The fewest evaluations between steps whose cost is known, if no epoch ended: a round number.
const EVALUATIONS: usize = 4;

/// The cause in [`Timing::outliers`] of isolated slow steps without a mark.
const OTHER: &str = "other";

/// One step, or several consecutive steps together.
#[derive(Debug, Clone, Copy)]
pub(in crate::probe) struct Observation {
    /// The end of the step, in seconds since the probe began.
    pub(in crate::probe) at: f64,
    /// The amount of work, in the unit of the throughput without the "per second", and its duration.
    pub(in crate::probe) work: Work,
    /// The seconds of the step in which it waited for its data; zero if not reported.
    pub(in crate::probe) waited: f64,
    /// The mark of the step, as an index into the window's `kinds`.
    pub(in crate::probe) mark: Option<usize>,
    pub(in crate::probe) before: Before,
    pub(in crate::probe) steps: u64,
}

/// The events between the previous step and this step.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::probe) struct Before {
    /// True if an epoch ended, whatever the mark of the step.
    pub(in crate::probe) ends_epoch: bool,
    /// The seconds of evaluation.
    pub(in crate::probe) evaluation: f64,
    /// The seconds in which the process was held, and the seconds of skipped steps (`Window::skip`).
    pub(in crate::probe) held: f64,
    /// The work of skipped steps.
    pub(in crate::probe) skipped: f64,
    /// The work of steps that are skipped after the end of an epoch. Their seconds are not in `held`.
    pub(in crate::probe) behind_end: f64,
}

/// The throughput of a probe, and the steps from which it was computed.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::probe) struct Throughput {
    /// The mean over the window, with its 95% interval.
    pub(in crate::probe) estimate: Estimate,
    pub(in crate::probe) timing: Timing,
    /// The steps up to the end of frequent compilations, which are dropped. `warmup_steps` includes them.
    pub(in crate::probe) compiling_steps: u64,
    /// The time of the longest counted step, in seconds.
    pub(in crate::probe) longest_step: f64,
    /// Time from the end of warm-up to the last step, including everything in between.
    pub(in crate::probe) measured: Duration,
    /// The end of the last step, since the probe began.
    pub(in crate::probe) ended: Duration,
    pub(in crate::probe) epochs: usize,
}

impl Throughput {
    /// Returns the throughput of observations; `kinds` are the names of their marks.
    pub(in crate::probe) fn of(observations: &[Observation], kinds: &[String]) -> Option<Self> {
        let mut left_out = marked(observations, kinds);
        let compiled = behind_compilations(observations, kinds);
        let regular: Vec<usize> = (compiled..observations.len()).filter(|&at| left_out[at].is_none()).collect();
        let times = times(observations, &regular);
        let largest = stats::isolated_above(&times);
        let alone = largest.map_or_else(Vec::new, |largest| isolated(observations, &regular, &times, largest));
        let cut = stats::warmup_length(&times, largest.unwrap_or(f64::INFINITY));
        let cut = behind_early_ones(regular.get(cut).copied()?, observations.len(), &alone);
        if are_exceptions(observations, &left_out, cut, &alone) {
            alone.iter().for_each(|&at| left_out[at] = Some(OTHER));
        }
        let steady: Vec<usize> = (cut..observations.len()).filter(|&at| left_out[at].is_none()).collect();
        let works: Vec<Work> = steady.iter().map(|&at| observations[at].work).collect();
        let rate = MeanRate::of(&works)?;
        let ends: Vec<usize> = (cut..observations.len()).filter(|&at| observations[at].before.ends_epoch).collect();
        let (epoch_factor, epoch_end) = cost(observations, &ends, rate.rate).unzip();
        let evaluations: Vec<usize> =
            (cut..observations.len()).filter(|&at| left_out[at] == Some(EVALUATION)).collect();
        let is_known = ends.is_empty() && evaluations.len() >= EVALUATIONS;
        let evaluation = cost(observations, &evaluations, rate.rate).map(|(_, cost)| cost).filter(|_| is_known);
        let scale = epoch_factor.unwrap_or(1.0);
        let estimate = match rate.interval(0.95) {
            Some((low, high)) => Estimate::interval(rate.rate * scale, low * scale, high * scale),
            None => Estimate::point(rate.rate * scale),
        };
        let steps: u64 = steady.iter().map(|&at| observations[at].steps).sum();
        let last = observations.last()?;
        let begin = match cut.checked_sub(1) {
            Some(before) => observations[before].at,
            None => observations[0].at - observations[0].work.seconds,
        };
        if epoch_factor.is_some() {
            // Ends of epochs count, so they are not left out.
            left_out.iter_mut().zip(observations).for_each(|(reason, step)| {
                reason.take_if(|reason| step.before.ends_epoch || *reason == EPOCH);
            });
        }
        let steps_of = |observations: &[Observation]| observations.iter().map(|step| step.steps).sum::<u64>();
        let longest_step = steady.iter().map(|&at| observations[at].work.seconds / count(observations[at].steps));
        let amounts: Vec<f64> =
            steady.iter().map(|&at| observations[at].work.amount / count(observations[at].steps)).collect();
        let measured = Duration::try_from_secs_f64(last.at - begin).unwrap_or_default();
        let timing = Timing {
            steps,
            warmup_steps: steps_of(&observations[..cut]),
            step_seconds: Some(works.iter().map(|work| work.seconds).sum::<f64>() / count(steps)),
            samples_per_step: Some(stats::median(&amounts)?),
            measured_seconds: Some(measured.as_secs_f64()),
            outliers: outliers(&observations[cut..], &left_out[cut..]),
            epoch_factor,
            epoch_end,
            evaluation,
            trend: stats::trend(&self::times(observations, &steady)),
            ..Timing::default()
        };
        Some(Self {
            estimate,
            timing,
            compiling_steps: steps_of(&observations[..compiled]),
            epochs: ends.len(),
            longest_step: longest_step.fold(0.0, f64::max),
            measured,
            ended: Duration::try_from_secs_f64(last.at).unwrap_or_default(),
        })
    }

    /// Returns the measured time span of a probe that began at `begin`.
    pub(in crate::probe) fn span(&self, begin: Instant) -> (Instant, Instant) {
        let end = begin + self.ended;
        (end.checked_sub(self.measured).unwrap_or(begin).max(begin), end)
    }

    /// Returns the share of the measured time that is not in outliers.
    pub(in crate::probe) fn counted_share(&self) -> f64 {
        let left_out: f64 = self.timing.outliers.values().map(|outliers| outliers.seconds).sum();
        (1.0 - left_out / self.measured.as_secs_f64()).clamp(f64::MIN_POSITIVE, 1.0)
    }

    /// Returns true if warm-up is known to be over. At most half of the steps are dropped as warm-up. If half are
    /// dropped, warm-up may end later. Compiling steps do not count here, because marks show where compilations end.
    pub(in crate::probe) fn is_settled(&self) -> bool {
        self.timing.warmup_steps - self.compiling_steps < self.timing.steps
    }

    /// Returns the number of steps after warm-up, including left-out steps.
    pub(in crate::probe) fn steps_after_warmup(&self) -> u64 {
        self.timing.steps + self.timing.outliers.values().map(|outliers| outliers.steps).sum::<u64>()
    }
}

/// Returns the rate from the first to the last of some steps as a share of a rate between them, and what each of these steps costs.
/// Examples are the ends of epochs. The time includes everything between, but not the time in which the process was held. A
/// skipped step counts as if it had the rate of the other steps.
fn cost(observations: &[Observation], ends: &[usize], rate: f64) -> Option<(f64, EpochEnd)> {
    let (&first, &last) = (ends.first()?, ends.last()?);
    let between = &observations[first + 1..=last];
    let sum = |of: fn(&Observation) -> f64| between.iter().map(of).sum::<f64>();
    let (amount, skipped) = (sum(|step| step.work.amount), sum(|step| step.before.skipped));
    let seconds = observations[last].at - observations[first].at - sum(|step| step.before.held) + skipped / rate;
    if last == first || amount <= 0.0 || seconds <= 0.0 {
        return None;
    }
    let amount = amount + skipped + sum(|step| step.before.behind_end);
    let times = count((ends.len() - 1) as u64);
    let evaluation_s = Some(sum(|step| step.before.evaluation) / times).filter(|seconds| *seconds > 0.0);
    let each = (seconds - amount / rate).max(0.0) / times;
    Some((amount / seconds / rate, EpochEnd { seconds: each, evaluation_s, samples: amount / times }))
}

/// Returns the number of observations up to the end of frequent compilations, or 0. The end is the last compilation at
/// which more than a quarter of all steps before were compilations.
pub(super) fn behind_compilations(observations: &[Observation], kinds: &[String]) -> usize {
    let (mut all, mut compilations, mut behind) = (0, 0, 0);
    for (at, step) in observations.iter().enumerate() {
        all += step.steps;
        if step.mark.is_some_and(|kind| COMPILATIONS.contains(&kinds[kind].as_str())) {
            compilations += step.steps;
            if compilations * RARELY > all {
                behind = at + 1;
            }
        }
    }
    behind
}

/// Returns for each kind of mark if its steps are exceptions, which do not count.
///
/// If more than a quarter of all steps have the same mark, the mark is no exception, and these steps count. Compilations never
/// count.
pub(super) fn exceptions(observations: &[Observation], kinds: &[String]) -> Vec<bool> {
    let all: u64 = observations.iter().map(|step| step.steps).sum();
    let is_exception = |kind: usize| {
        let of_it = observations.iter().filter(|step| step.mark == Some(kind)).map(|step| step.steps);
        COMPILATIONS.contains(&kinds[kind].as_str()) || of_it.sum::<u64>() * RARELY <= all
    };
    (0..kinds.len()).map(is_exception).collect()
}

/// Returns for each step the reason to leave it out, based on the marks.
///
/// A marked step is left out even if it is fast: leaving out only slow steps would make the mean too good.
fn marked<'k>(observations: &[Observation], kinds: &'k [String]) -> Vec<Option<&'k str>> {
    let is_rare = exceptions(observations, kinds);
    let kind = |step: &Observation| step.mark.filter(|&kind| is_rare[kind]).map(|kind| kinds[kind].as_str());
    let mut left_out: Vec<Option<&str>> = observations.iter().map(kind).collect();
    leave_out_refills(observations, &mut left_out);
    left_out
}

/// Leaves out the steps right after the end of an epoch until a step takes a usual time. A restarted loader is slow or
/// fast until its queue is as full as before.
fn leave_out_refills(observations: &[Observation], left_out: &mut [Option<&str>]) {
    /// The most steps left out after an epoch: the queue of a loader with 32 workers and two batches each.
    const LONGEST: usize = 64;
    /// This many steps after the end of an epoch do not define the usual times.
    const NEAR: usize = 16;
    /// The fewest other steps that define the usual times. If there are fewer, all regular steps define them.
    const FEWEST: usize = 20;
    /// The fastest and the slowest times of these steps are unusual: this share at each end.
    const UNUSUAL: f64 = 0.01;
    if !left_out.contains(&Some(EPOCH)) {
        return;
    }
    let regular: Vec<usize> = (0..observations.len()).filter(|&at| left_out[at].is_none()).collect();
    let times = times(observations, &regular);
    let is_far = |at: usize| !left_out[at.saturating_sub(NEAR)..at].contains(&Some(EPOCH));
    let mut sorted: Vec<f64> =
        regular.iter().zip(&times).filter(|(at, _)| is_far(**at)).map(|(_, time)| *time).collect();
    if sorted.len() < FEWEST {
        sorted.clone_from(&times);
    }
    sorted.sort_by(f64::total_cmp);
    let edge = (sorted.len() as f64 * UNUSUAL) as usize;
    let Some((&low, &high)) = sorted.get(edge).zip(sorted.get(sorted.len().wrapping_sub(edge + 1))) else { return };
    let mut time = vec![f64::NAN; observations.len()];
    regular.iter().zip(times).for_each(|(&at, seconds)| time[at] = seconds);
    let mut since = LONGEST;
    for at in 0..observations.len() {
        match left_out[at] {
            Some(EPOCH) => since = 0,
            Some(_) => {}
            None if since < LONGEST && (time[at] < low || time[at] > high) => {
                left_out[at] = Some(EPOCH);
                since += 1;
            }
            None => since = LONGEST,
        }
    }
}

/// Returns the seconds per unit of work of some steps. A step without work counts as if it had done a little work.
fn times(observations: &[Observation], places: &[usize]) -> Vec<f64> {
    /// The share of the mean work that counts for a step without work: a round number, small but not zero.
    const LITTLE: f64 = 1e-3;
    let all: f64 = places.iter().map(|&at| observations[at].work.amount).sum();
    let least = (all / count(places.len().max(1) as u64) * LITTLE).max(f64::MIN_POSITIVE);
    places.iter().map(|&at| observations[at].work.seconds / observations[at].work.amount.max(least)).collect()
}

/// Returns the regular steps above `largest`, except waits for data: a loader has bursts, so its waits are in the rate.
fn isolated(observations: &[Observation], regular: &[usize], times: &[f64], largest: f64) -> Vec<usize> {
    let middle = stats::median(times).unwrap_or(0.0);
    let is_isolated = |at: usize, time: f64| {
        let step = &observations[at];
        // The step waited for data if the wait is at least half of its time above the median.
        let is_wait = step.waited >= (1.0 - middle / time) * step.work.seconds / 2.0;
        time > largest && !(step.waited > 0.0 && is_wait)
    };
    regular.iter().zip(times).filter(|(at, time)| is_isolated(**at, **time)).map(|(at, _)| *at).collect()
}

/// Moves the cut behind the isolated slow steps in the first tenth of the steps, because one-time set-up is warm-up.
fn behind_early_ones(cut: usize, steps: usize, alone: &[usize]) -> usize {
    /// One-time set-up may be in the first of this many equal parts of the steps: a round number.
    const EARLY: usize = 10;
    let early = cut.max(steps / EARLY);
    alone.iter().rev().find(|&&at| (cut..early).contains(&at)).map_or(cut, |at| at + 1)
}

/// Returns true if isolated steps take so little time after the cut that a rate without them is right.
///
/// The cause of these steps is unknown. If they take more time, they belong to the cost of training on this machine,
/// even if they are rare: no run reaches the rate without them. An example is a stall as long as thirty steps, once
/// every sixty steps.
fn are_exceptions(observations: &[Observation], left_out: &[Option<&str>], cut: usize, alone: &[usize]) -> bool {
    /// Half of the default relative half width of 2%, so that leaving the steps out cannot put the true rate outside an interval.
    const MOST: f64 = 0.01;
    let counted = (cut..observations.len()).filter(|&at| left_out[at].is_none());
    let seconds: f64 = counted.map(|at| observations[at].work.seconds).sum();
    let alone = alone.iter().filter(|&&at| at >= cut).map(|&at| observations[at].work.seconds);
    alone.sum::<f64>() <= MOST * seconds
}

fn outliers(observations: &[Observation], left_out: &[Option<&str>]) -> BTreeMap<String, Outliers> {
    let mut found: BTreeMap<String, Outliers> = BTreeMap::new();
    for (step, kind) in observations.iter().zip(left_out) {
        let Some(kind) = kind else { continue };
        let entry = found.entry((*kind).to_owned()).or_default();
        entry.steps += step.steps;
        entry.seconds += step.work.seconds;
    }
    found
}

/// Converts a count, which is far below 2^53.
pub(super) fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::super::simulations::{Step, throughput};
    use super::super::window::{StepReport, Window};
    use super::*;
    use crate::probe::stats::simulation::{Process, Random};

    fn plain(seconds: impl IntoIterator<Item = f64>) -> Throughput {
        throughput(seconds.into_iter().map(|seconds| (seconds, 0.0, None)))
    }

    fn assert_rate(throughput: &Throughput, rate: f64) {
        assert!((throughput.estimate.value / rate - 1.0).abs() < 0.02, "{rate}: {throughput:?}");
    }

    /// Returns steps of 10 ms with a little noise.
    fn steady(count: usize) -> Vec<f64> {
        Process::Independent(0.02).times(count, &mut Random(9)).into_iter().map(|time| time * 0.01).collect()
    }

    /// Returns the throughput of steady steps, each changed by `change`.
    fn changed(count: usize, change: impl Fn(usize, f64) -> Step<'static>) -> Throughput {
        throughput(steady(count).into_iter().enumerate().map(|(at, time)| change(at, time)))
    }

    #[test]
    fn steady_steps_give_their_rate() {
        let found = plain([0.01; 100]);
        assert_rate(&found, 3200.0);
        assert!((found.timing.step_seconds.unwrap() - 0.01).abs() < 1e-9);
        assert_eq!((found.timing.steps + found.timing.warmup_steps, found.timing.samples_per_step), (100, Some(32.0)));
        assert!((found.measured.as_secs_f64() - 1.0).abs() < 1e-6);
        let one = plain([0.5]);
        assert_eq!((one.estimate, one.timing.steps), (Estimate::point(64.0), 1), "one step has no interval");
    }

    #[test]
    fn the_measured_part_lies_behind_warm_up() {
        let mut steps = steady(100);
        steps[0] = 3.0;
        let begin = Instant::now();
        let (from, to) = plain(steps.clone()).span(begin);
        assert!((to.duration_since(begin).as_secs_f64() - steps.iter().sum::<f64>()).abs() < 1e-6);
        assert!((3.0..3.5).contains(&from.duration_since(begin).as_secs_f64()), "{:?}", from.duration_since(begin));
    }

    #[test]
    fn what_ends_at_different_times_is_all_warm_up() {
        // Compilation in the first step, autotuning in the second, the optimizer's state in the fourth, and another level until the
        // thirtieth.
        let mut steps = steady(120);
        (steps[0], steps[1], steps[3]) = (3.0, 0.4, 0.05);
        steps[4..30].iter_mut().for_each(|time| *time *= 1.3);
        let found = plain(steps);
        assert_rate(&found, 3200.0);
        assert!((29..40).contains(&found.timing.warmup_steps) && found.timing.outliers.is_empty(), "{found:?}");
    }

    #[test]
    fn steps_that_are_too_fast_at_first_are_warm_up_too() {
        for (fast, workers) in [(8, 4), (16, 8), (32, 16), (8, 1)] {
            let is_slow = |step: usize| step >= fast && step.is_multiple_of(workers);
            let slow = 0.002 + 0.008 * workers as f64;
            let found = plain((0..fast + 20 * workers).map(|step| if is_slow(step) { slow } else { 0.002 }));
            assert_rate(&found, 3200.0);
            assert!(found.is_settled());
        }
    }

    #[test]
    fn bursts_of_a_loader_count_in_full() {
        for workers in [2, 3, 4, 8, 16] {
            let slow = 0.01 * workers as f64 - 0.001 * (workers - 1) as f64;
            let found = plain((0..25 * workers).map(|step| if step % workers == 1 { slow } else { 0.001 }));
            assert_rate(&found, 3200.0);
            let half = found.estimate.relative_half_width().unwrap();
            assert!(found.timing.outliers.is_empty() && half < 0.02, "{workers}: {found:?}");
        }
    }

    #[test]
    fn marked_steps_are_left_out_and_told_by_kind() {
        let found = changed(100, |at, time| match at {
            30 => (time + 0.5, 0.0, Some("epoch")),
            45 => (time + 1.0, 0.0, Some("evaluation")),
            // The step is as fast as other steps, but is still left out.
            70 => (time, 0.0, Some("checkpoint")),
            _ => (time, 0.0, None),
        });
        assert_rate(&found, 3200.0);
        let left_out = &found.timing.outliers;
        let counts: Vec<_> = left_out.iter().map(|(kind, outliers)| (kind.as_str(), outliers.steps)).collect();
        assert_eq!(counts, [("checkpoint", 1), ("epoch", 1), ("evaluation", 1)]);
        assert!((left_out["evaluation"].seconds - 1.01).abs() < 0.01);
        assert_eq!((found.epochs, found.timing.epoch_factor), (1, None));
        assert_eq!(found.timing.steps + found.timing.warmup_steps, 97);
        assert!(found.measured.as_secs_f64() > 2.0, "excluded steps also take time");
        let half = |at: u32| if at.is_multiple_of(2) { (0.015, 0.0, Some("evaluation")) } else { (0.005, 0.0, None) };
        let half = throughput((0..60).map(half));
        assert_rate(&half, 3200.0);
        assert!(half.timing.outliers.is_empty(), "a mark on every other step is no exception");
    }

    #[test]
    fn a_loader_that_fills_its_queue_again_after_an_epoch_belongs_to_it() {
        let found = changed(100, |at, time| match at {
            50 => (time + 0.5, 0.0, Some("epoch")),
            51..54 => (time + 0.1, 0.1, None),
            _ => (time, 0.0, None),
        });
        assert_rate(&found, 3200.0);
        assert_eq!(found.timing.outliers["epoch"].steps, 4);
    }

    /// Ten steps per epoch, and 0.8 s for new loader workers at its end.
    #[test]
    fn the_ends_of_epochs_count_once_two_were_seen() {
        let step = |at: u32| if at % 10 == 9 { (0.81, 0.0, Some("epoch")) } else { (0.01, 0.0, None) };
        let found = throughput((0..60).map(step));
        assert_rate(&found, 320.0 / 0.9);
        assert!((found.timing.epoch_factor.unwrap() - 0.1 / 0.9).abs() < 0.01, "{found:?}");
        assert!((found.timing.step_seconds.unwrap() - 0.01).abs() < 1e-9, "{found:?}");
        assert!(found.timing.outliers.is_empty(), "{found:?}");
    }

    #[test]
    fn what_evaluations_between_steps_cost_is_known_once_four_were_seen() {
        let step = |at: u32| if at % 10 == 9 { (0.11, 0.0, Some("evaluation")) } else { (0.01, 0.0, None) };
        let found = throughput((0..60).map(step));
        assert_rate(&found, 3200.0);
        let cost = found.timing.evaluation.unwrap();
        assert!((cost.seconds - 0.1).abs() < 0.01 && (cost.samples - 320.0).abs() < 1.0, "{cost:?}");
        let few = throughput((0..38).map(step));
        assert_eq!((few.timing.evaluation, few.timing.outliers["evaluation"].steps), (None, 3));
    }

    /// Ten steps per epoch and 0.4 s of evaluation at its end. The process is held for 20 s in every second epoch.
    #[test]
    fn the_ends_of_epochs_have_their_evaluation_and_no_time_in_which_the_process_was_held() {
        let (mut window, mut at) = (Window::default(), 0.0);
        for step in 0..60 {
            let is_end = step % 10 == 9;
            if step % 20 == 5 {
                at += 20.0;
                window.go_on(at);
                // The start of the first step after a hold is not known.
                at += 0.01;
                window.skip(at, 32.0);
                continue;
            }
            let seconds = if is_end { 0.81 } else { 0.01 };
            at += seconds;
            if is_end {
                window.end_epoch();
                window.evaluate(0.4);
            }
            let mark = is_end.then_some("evaluation");
            window.push(StepReport { at: Duration::from_secs_f64(at), seconds, amount: 32.0, waited: 0.0, mark });
        }
        let found = window.throughput().unwrap();
        assert_rate(&found, 320.0 / 0.9);
        let end = found.timing.epoch_end.unwrap();
        assert_eq!(end.samples, 320.0);
        assert!((end.seconds - 0.8).abs() < 0.01 && (end.evaluation_s.unwrap() - 0.4).abs() < 0.01, "{end:?}");
        assert!(found.timing.outliers.is_empty(), "{found:?}");
    }

    #[test]
    fn isolated_slow_steps_are_left_out_unless_they_wait_for_data() {
        let with_pause = |waited: f64| {
            changed(1500, |at, time| match at {
                700 | 1210 => (time + 0.04, waited, None),
                _ => (time, 0.0, None),
            })
        };
        let found = with_pause(0.0);
        assert_rate(&found, 3200.0);
        assert_eq!(found.timing.outliers["other"].steps, 2);
        assert!(with_pause(0.04).timing.outliers.is_empty());
    }

    #[test]
    fn slow_steps_that_hold_more_than_a_hundredth_of_the_time_count_however_rare() {
        for (pause, is_left_out) in [(0.06, true), (0.08, false), (3.0, false)] {
            let found = plain((0..1500).map(|at| if at == 700 || at == 1210 { 0.01 + pause } else { 0.01 }));
            assert_eq!(found.timing.outliers.contains_key("other"), is_left_out, "{pause}: {found:?}");
            let seconds = if is_left_out { 15.0 } else { 15.0 + 2.0 * pause };
            assert!((found.estimate.value / (32.0 * 1500.0 / seconds) - 1.0).abs() < 0.002, "{found:?}");
        }
    }

    #[test]
    fn a_step_that_did_nothing_takes_its_time() {
        let mut window = Window::default();
        for at in 1..=40_u32 {
            let (at, amount) = (Duration::from_millis(10) * at, if at % 2 == 1 { 64.0 } else { 0.0 });
            window.push(StepReport { at, seconds: 0.01, amount, waited: 0.0, mark: None });
        }
        assert_rate(&window.throughput().unwrap(), 3200.0);
    }
}
