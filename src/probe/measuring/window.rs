//! Keeps the steps of one probe as they arrive.

use std::time::Duration;

use super::printed::Printed;
use super::running_mean::Stretch;
use super::throughput::{Before, EPOCH, Observation, Throughput, behind_compilations, count, exceptions};
use crate::probe::stats::Work;

/// The largest number of observations. If there are more, neighbours are added up, so that memory stays bounded.
const KEPT: usize = 1 << 14;

/// The phase in which a step waits for its data.
pub(in crate::probe) const DATA_WAIT: &str = "data_wait";

/// A step as it was reported, in the units of [`Observation`].
#[derive(Debug, Clone, Copy)]
pub(in crate::probe) struct StepReport<'r> {
    /// The end of the step, since the probe began.
    pub(in crate::probe) at: Duration,
    pub(in crate::probe) seconds: f64,
    pub(in crate::probe) amount: f64,
    pub(in crate::probe) waited: f64,
    pub(in crate::probe) mark: Option<&'r str>,
}

/// The compilations at the start of a probe, according to the marks of its steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::probe) struct Compiling {
    /// The time from the start of the first step to the end of the last step, in seconds.
    pub(in crate::probe) seconds: f64,
    /// All steps of the probe.
    pub(in crate::probe) steps: u64,
    /// The steps after these compilations, including later, rare compilations.
    pub(in crate::probe) steps_since: u64,
}

impl Compiling {
    /// Returns true if too few steps came since the last compilation to know the rate.
    pub(in crate::probe) fn is_going_on(&self) -> bool {
        /// The minimum number of steps for a measurement when the time is over.
        const FEWEST: u64 = 3;
        self.steps_since < FEWEST
    }

    /// Returns the reason why such a probe ended without a measurement.
    pub(in crate::probe) fn reason(&self) -> String {
        let decimals = if self.seconds < 10.0 { 1 } else { 0 };
        format!(
            "still compiling after {:.decimals$} s ({} steps); raise measure_time or probe_time in [limits]",
            self.seconds, self.steps
        )
    }
}

#[derive(Debug, Default)]
pub(in crate::probe) struct Window {
    observations: Vec<Observation>,
    /// The names of the marks.
    kinds: Vec<String>,
    /// The number of steps in each unmarked observation.
    stride: u64,
    /// The unmarked observation that has fewer steps than `stride` up to now.
    open: Option<Observation>,
    steps: u64,
    /// The events since the last step.
    before: Before,
    printed: Printed,
}

impl Window {
    /// Notes that an epoch ends before the next step.
    pub(in crate::probe) fn end_epoch(&mut self) {
        self.before.ends_epoch = true;
    }

    /// Notes the seconds of evaluation before the next step.
    pub(in crate::probe) fn evaluate(&mut self, seconds: f64) {
        self.before.evaluation = seconds;
    }

    /// Notes that a process that was held trains again from this moment, in seconds since the probe began.
    pub(in crate::probe) fn go_on(&mut self, at: f64) {
        let last = self.last_step().map(|last| last.as_secs_f64());
        self.before.held = last.map_or(0.0, |last| (at - last).max(0.0));
    }

    /// Records a first step, or the first step after a hold: its start is unknown, and `at` is its end.
    pub(in crate::probe) fn skip(&mut self, at: f64, amount: f64) {
        if self.before.ends_epoch {
            self.before.behind_end += amount;
        } else {
            self.go_on(at);
            self.before.skipped += amount;
        }
    }

    /// Adds a step; a step with invalid numbers is left out.
    pub(in crate::probe) fn push(&mut self, step: StepReport<'_>) {
        let StepReport { at, seconds, amount, waited, mark } = step;
        if !(seconds > 0.0 && seconds.is_finite() && amount.is_finite() && amount >= 0.0) {
            return;
        }
        self.steps += 1;
        let mut before = std::mem::take(&mut self.before);
        before.ends_epoch |= mark == Some(EPOCH);
        let mark = mark.map(|name| self.kind(name));
        let (at, work) = (at.as_secs_f64(), Work { amount, seconds });
        let step = Observation { at, work, waited, mark, before, steps: 1 };
        if mark.is_some() {
            self.observations.push(step);
        } else {
            let sum = self.open.take().map_or(step, |open| together(open, step));
            if sum.steps < self.stride {
                self.open = Some(sum);
                return;
            }
            self.observations.push(sum);
        }
        if self.observations.len() >= KEPT {
            self.halve();
        }
    }

    /// Replaces the work of all earlier steps, in samples, by their number of steps.
    pub(in crate::probe) fn count_steps(&mut self) {
        for step in self.observations.iter_mut().chain(&mut self.open) {
            step.work.amount = count(step.steps);
        }
    }

    pub(in crate::probe) fn push_rates(&mut self, at: Duration, rates: &[f64]) {
        let (replaces, stretches) = self.printed.take(at.as_secs_f64(), rates);
        if replaces {
            (self.open, self.stride) = (None, 0);
            self.observations.clear();
        }
        for Stretch { at, seconds, rate } in stretches {
            let at = Duration::try_from_secs_f64(at).unwrap_or_default();
            self.push(StepReport { at, seconds, amount: rate * seconds, waited: 0.0, mark: None });
        }
    }

    /// Returns the current number of steps, including warm-up.
    pub(in crate::probe) fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the end of the last step, since the probe began.
    pub(in crate::probe) fn last_step(&self) -> Option<Duration> {
        let last = self.open.as_ref().or(self.observations.last())?;
        Duration::try_from_secs_f64(last.at).ok()
    }

    /// Returns the state of a probe whose first steps compiled; `None` if they did not compile.
    pub(in crate::probe) fn compiling(&self) -> Option<Compiling> {
        let behind = behind_compilations(&self.observations, &self.kinds);
        let (first, last) = self.observations.first().zip(self.observations.last()).filter(|_| behind > 0)?;
        let seconds = last.at - first.at + first.work.seconds;
        let since = self.observations[behind..].iter().chain(&self.open);
        Some(Compiling { seconds, steps: self.steps, steps_since: since.map(|step| step.steps).sum() })
    }

    /// Returns the work per second between two moments, in seconds since the probe began; `None` without a step.
    pub(in crate::probe) fn rate_between(&self, (from, to): (f64, f64)) -> Option<f64> {
        let within = self.since(from).iter().take_while(|step| step.at <= to);
        let work: Work = within.map(|step| step.work).sum();
        (work.seconds > 0.0).then(|| work.amount / work.seconds)
    }

    /// Returns the number of steps until a moment, in seconds since the probe began. An unfinished step counts in part.
    pub(in crate::probe) fn steps_until(&self, moment: f64) -> f64 {
        let behind = self.observations.partition_point(|step| step.at <= moment);
        let (before, after) = self.observations.split_at(behind);
        let whole: u64 = before.iter().map(|step| step.steps).sum();
        let part = after.first().map_or(0.0, |step| {
            let (seconds, since) = (step.work.seconds, moment - (step.at - step.work.seconds));
            count(step.steps) * (since / seconds).clamp(0.0, 1.0)
        });
        count(whole) + part
    }

    /// Returns the observations after a moment, in seconds since the probe began.
    pub(in crate::probe) fn since(&self, from: f64) -> &[Observation] {
        let first = self.observations.partition_point(|step| step.at <= from);
        self.observations.get(first..).unwrap_or_default()
    }

    /// Returns for each kind of mark if its steps are exceptions, which do not count.
    pub(in crate::probe) fn exceptions(&self) -> Vec<bool> {
        exceptions(&self.observations, &self.kinds)
    }

    pub(in crate::probe) fn throughput(&self) -> Option<Throughput> {
        Throughput::of(&self.observations, &self.kinds)
    }

    /// Returns the index of a mark's name. If there are too many names, further names share the last index.
    fn kind(&mut self, name: &str) -> usize {
        const MOST: usize = 16;
        match self.kinds.iter().position(|kind| kind == name) {
            Some(place) => place,
            None if self.kinds.len() < MOST => {
                self.kinds.push(name.to_owned());
                self.kinds.len() - 1
            }
            None => MOST - 1,
        }
    }

    /// Halves the number of observations without a mark by adding up neighbours. If there are still too many
    /// observations, because of their marks, drops every second observation.
    fn halve(&mut self) {
        self.stride = self.stride.max(1) * 2;
        let mut kept: Vec<Observation> = Vec::with_capacity(KEPT);
        let mut waiting: Option<Observation> = None;
        for &step in &self.observations {
            if step.mark.is_some() {
                kept.push(step);
                continue;
            }
            match waiting.take() {
                Some(before) => kept.push(together(before, step)),
                None => waiting = Some(step),
            }
        }
        if let Some(left) = waiting {
            self.open = Some(self.open.map_or(left, |open| together(left, open)));
        }
        if kept.len() > KEPT * 3 / 4 {
            kept = kept.into_iter().step_by(2).collect();
        }
        self.observations = kept;
    }
}

fn together(first: Observation, second: Observation) -> Observation {
    Observation {
        at: second.at,
        work: first.work + second.work,
        waited: first.waited + second.waited,
        mark: None,
        before: Before {
            ends_epoch: first.before.ends_epoch || second.before.ends_epoch,
            evaluation: first.before.evaluation + second.before.evaluation,
            held: first.before.held + second.before.held,
            skipped: first.before.skipped + second.before.skipped,
            behind_end: first.before.behind_end + second.before.behind_end,
        },
        steps: first.steps + second.steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(seconds: f64, amount: f64, mark: Option<&str>) -> StepReport<'_> {
        StepReport { at: Duration::ZERO, seconds, amount, waited: 0.0, mark }
    }

    #[test]
    fn a_flood_of_steps_is_folded() {
        let mut window = Window::default();
        for at in 0..200_000_u32 {
            let report = step(1e-6, 32.0, if at % 50_000 == 40_000 { Some("epoch") } else { None });
            window.push(StepReport { at: Duration::from_micros(u64::from(at) + 1), ..report });
        }
        assert!(window.observations.len() <= KEPT);
        assert_eq!(window.steps(), 200_000);
        let throughput = window.throughput().unwrap();
        assert!((throughput.estimate.value / 32e6 - 1.0).abs() < 1e-3, "{throughput:?}");
        assert!((throughput.timing.step_seconds.unwrap() / 1e-6 - 1.0).abs() < 1e-6, "{throughput:?}");
        assert_eq!((throughput.epochs, throughput.timing.samples_per_step), (4, Some(32.0)));
    }

    #[test]
    fn a_flood_of_marks_is_folded_too() {
        let mut window = Window::default();
        (0..100_000).for_each(|at| window.push(step(1e-6, 32.0, Some(&format!("kind {at}")))));
        assert!(window.observations.len() <= KEPT && window.kinds.len() <= 16);
        assert!(window.throughput().is_some());
    }

    #[test]
    fn steps_are_counted_once_their_samples_are_not_known() {
        let mut window = Window::default();
        (0..10).for_each(|_| window.push(step(0.5, 32.0, None)));
        window.count_steps();
        (0..10).for_each(|_| window.push(step(0.5, 1.0, None)));
        assert_eq!(window.throughput().unwrap().estimate.value, 2.0);
    }

    /// Returns a window of steps of 50 ms, each with a mark or without one.
    fn marked(marks: impl IntoIterator<Item = Option<&'static str>>) -> Window {
        let mut window = Window::default();
        for (at, mark) in marks.into_iter().enumerate() {
            let at = Duration::from_millis(50) * u32::try_from(at + 1).unwrap();
            window.push(StepReport { at, ..step(0.05, 8.0, mark) });
        }
        window
    }

    #[test]
    fn compilations_are_over_a_few_steps_behind_the_last() {
        let with = |since| marked([Some("recompile"); 30].into_iter().chain(vec![None; since])).compiling().unwrap();
        assert!(with(2).is_going_on() && !with(3).is_going_on());
        assert_eq!((with(3).steps, with(3).steps_since), (33, 3));
        assert!(marked([Some("compile"); 24]).compiling().unwrap().reason().contains(" after 1.2 s (24 steps)"));
        let each_third = marked((0..99).map(|at| (at % 3 == 2).then_some("recompile")));
        assert!(each_third.compiling().unwrap().is_going_on());
        let rare = marked((0..99).map(|at| (at % 30 == 29).then_some("recompile")));
        assert_eq!(rare.compiling(), None);
    }

    #[test]
    fn nonsense_is_left_out() {
        let mut window = Window::default();
        for (seconds, amount) in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, -1.0)] {
            window.push(step(seconds, amount, None));
        }
        assert_eq!(window.steps(), 0);
        assert!(window.throughput().is_none());
        window.push_rates(Duration::from_secs(1), &[0.0]);
        assert!(window.throughput().is_none(), "nothing was done in that time");
    }

    #[test]
    fn the_step_that_goes_on_counts_in_part() {
        let window = marked([None; 10]);
        for (moment, steps) in [(0.0, 0.0), (0.05, 1.0), (0.075, 1.5), (0.5, 10.0), (9.0, 10.0)] {
            assert!((window.steps_until(moment) - steps).abs() < 1e-6, "{moment}");
        }
    }

    #[test]
    fn one_rate_is_taken_as_it_is() {
        let mut window = Window::default();
        window.push_rates(Duration::from_secs(3), &[1234.5]);
        assert_eq!(window.throughput().unwrap().estimate, crate::model::Estimate::point(1234.5));
        window.push_rates(Duration::from_secs(5), &[500.0]);
        let throughput = window.throughput().unwrap();
        assert_eq!(throughput.estimate.value, 500.0, "the first rate counts only if it is the only rate");
        assert_eq!((throughput.measured, window.steps()), (Duration::from_secs(2), 2));
    }
}
