//! Sums up a probe's reports besides step time: phases, memory, loss and further metrics.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::FIRST_LOSSES;
use super::ledger::{Ledger, StepKind};
use super::measuring::throughput::Throughput;
use super::memory_peaks::MemoryPeaks;
use super::protocol::MemoryReport;
use crate::model::{Account, Growth, MachineUse, Measurement, Resource};
use crate::probe::stats;

/// The number of values kept of each phase and metric. Older values are dropped.
const KEPT: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Totals {
    /// The seconds of each phase in the last steps.
    phases: BTreeMap<String, VecDeque<f64>>,
    /// The seconds of each phase in the current step.
    current: BTreeMap<String, f64>,
    metrics: BTreeMap<String, VecDeque<f64>>,
    /// True for each kept step that had a mark, or whose phases were not timed.
    left_out: VecDeque<bool>,
    loss: Option<f64>,
    first_losses: Vec<f64>,
    steps: usize,
    memory: MemoryPeaks,
    ledger: Ledger,
}

impl Totals {
    pub(super) fn phase(&mut self, name: &str, seconds: f64) {
        const MOST: usize = 64;
        let known = self.current.contains_key(name) || self.current.len() < MOST;
        if known && seconds.is_finite() && seconds >= 0.0 {
            *self.current.entry(name.to_owned()).or_default() += seconds;
        }
    }

    /// Returns the time spent until now in a phase of the current step.
    pub(super) fn current(&self, phase: &str) -> f64 {
        self.current.get(phase).copied().unwrap_or(0.0)
    }

    /// Ends the current step. Marked steps, and steps whose phases were not timed, do not count in the means of the phases.
    pub(super) fn step(&mut self, seconds: Option<f64>, loss: Option<f64>, kind: StepKind) {
        if let Some(seconds) = seconds {
            self.ledger.step(seconds, &self.current, kind);
        }
        push(&mut self.left_out, kind.is_marked || !kind.is_timed);
        self.loss = loss.or(self.loss);
        self.first_losses.extend(loss.filter(|_| self.first_losses.len() < FIRST_LOSSES));
        for (name, seconds) in std::mem::take(&mut self.current) {
            let steps = self.steps;
            let series = self.phases.entry(name).or_insert_with(|| std::iter::repeat_n(0.0, steps.min(KEPT)).collect());
            push(series, seconds);
        }
        self.steps += 1;
        let length = self.steps.min(KEPT);
        for series in self.phases.values_mut().filter(|series| series.len() < length) {
            push(series, 0.0);
        }
    }

    pub(super) fn account(&self, start: Duration) -> Option<Account> {
        self.ledger.account(start)
    }

    /// Returns true if the losses of the first `count` steps are known, or as many as a measurement keeps.
    pub(super) fn has_first_losses(&self, count: usize) -> bool {
        self.first_losses.len() >= count.min(FIRST_LOSSES)
    }

    pub(super) fn first_losses(&self) -> &[f64] {
        &self.first_losses
    }

    pub(super) fn metric(&mut self, name: &str, number: f64) {
        const MOST: usize = 256;
        if number.is_finite() && (self.metrics.len() < MOST || self.metrics.contains_key(name)) {
            push(self.metrics.entry(name.to_owned()).or_default(), number);
        }
    }

    pub(super) fn memory(&mut self, rank: u32, report: MemoryReport) {
        self.memory.push(rank, self.steps, report);
    }

    pub(super) fn has_failed_allocations(&self) -> bool {
        self.memory.has_failed_allocations()
    }

    pub(super) fn measurement(&self, throughput: &Throughput, unit: &str) -> Measurement {
        // A printed rate stands for several steps, so scale the numbers of `throughput` to the steps of these reports.
        let steady = throughput.steps_after_warmup().max(1);
        let all = (steady + throughput.timing.warmup_steps).max(1);
        let steady =
            usize::try_from(self.steps as u64 * steady / all).unwrap_or(self.steps).clamp(1, self.steps.max(1));
        let grows = self.memory.growth_after(self.steps.saturating_sub(steady));
        let growth = grows.zip(throughput.timing.step_seconds).map(|((per_step, left), step_seconds)| Growth {
            resource: Resource::DeviceMemory,
            per_second: per_step / step_seconds,
            left,
        });
        let phase_seconds = self.phases.iter().filter_map(|(name, times)| {
            let newest = times.iter().rev().zip(self.left_out.iter().rev()).take(steady);
            let steady: Vec<f64> = newest.filter(|(_, left_out)| !**left_out).map(|(time, _)| *time).collect();
            Some((name.clone(), stats::mean(&steady)?))
        });
        let median = |numbers: &VecDeque<f64>| stats::median(&Vec::from_iter(numbers.iter().copied()));
        let metrics = self.metrics.iter().filter_map(|(name, numbers)| Some((name.clone(), median(numbers)?)));
        let loss = self.loss.map(|loss| ("loss".to_owned(), loss));
        Measurement {
            throughput: Some(throughput.estimate),
            unit: unit.to_owned(),
            first_losses: self.first_losses.clone(),
            phase_seconds: phase_seconds.collect(),
            metrics: metrics.chain(loss).collect(),
            timing: throughput.timing.clone(),
            memory: self.memory.split_at(self.steps.saturating_sub(steady)),
            machine: MachineUse { growth: growth.into_iter().collect(), ..MachineUse::default() },
            ..Measurement::default()
        }
    }
}

fn push<T>(series: &mut VecDeque<T>, number: T) {
    if series.len() == KEPT {
        series.pop_front();
    }
    series.push_back(number);
}

/// The samples that the loader of one run has handed out up to each moment, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct HandedOut {
    points: Vec<(Instant, f64)>,
    /// True if the samples of a step after the first point are unknown.
    is_unknown: bool,
}

impl HandedOut {
    /// Adds the samples of the steps since the last call.
    pub(super) fn push(&mut self, at: Instant, samples: Option<f64>) {
        let Some(samples) = samples.filter(|samples| samples.is_finite() && *samples >= 0.0) else {
            self.is_unknown |= !self.points.is_empty(); // steps before a script's own first report come from the hook
            return;
        };
        let before = self.points.last().map_or(0.0, |(_, count)| *count);
        // The hook sends several steps at once: join the points of one moment.
        self.points.pop_if(|(last, _)| *last == at);
        self.points.push((at, before + samples));
        if self.points.len() == KEPT {
            // Keep the newest point: the next point adds to its count.
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
    }

    pub(super) fn rate(&self, (from, to): (Instant, Instant)) -> Option<f64> {
        let mut inside = self.points.iter().filter(|(at, _)| (from..=to).contains(at));
        let (first, last) = (inside.next()?, inside.next_back()?);
        let rate = (last.1 - first.1) / last.0.duration_since(first.0).as_secs_f64();
        (rate.is_finite() && rate > 0.0 && !self.is_unknown).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::measuring::window::{StepReport, Window};

    const USUAL: StepKind = StepKind { is_marked: false, is_timed: true };

    fn measured(totals: &Totals, warmup_steps: u64, steps: u64) -> Measurement {
        let mut window = Window::default();
        for step in 1..=warmup_steps + steps {
            let seconds = if step <= warmup_steps { 9.0 } else { 1.0 };
            window.push(StepReport { at: Duration::from_secs(step), seconds, amount: 1.0, waited: 0.0, mark: None });
        }
        let throughput = window.throughput().unwrap();
        assert_eq!(throughput.timing.warmup_steps, warmup_steps);
        totals.measurement(&throughput, "samples/s")
    }

    #[test]
    fn a_phase_is_a_mean_over_the_steady_steps_and_absence_is_zero() {
        let mut totals = Totals::default();
        totals.phase("data_wait", 100.0);
        totals.step(None, Some(2.0), USUAL);
        for _ in 0..2 {
            totals.phase("data_wait", 1.0);
            totals.phase("data_wait", 1.0);
            totals.step(None, None, USUAL);
            totals.step(None, None, USUAL);
        }
        let measurement = measured(&totals, 1, 4);
        assert_eq!(measurement.phase_seconds["data_wait"], 1.0);
        assert_eq!(measurement.metrics["loss"], 2.0);
    }

    #[test]
    fn steps_that_were_not_timed_are_no_part_of_the_mean_of_a_phase() {
        let mut totals = Totals::default();
        for step in 0..9 {
            let is_timed = step % 4 == 1;
            totals.phase("data_wait", if is_timed { 0.1 } else { 0.7 });
            totals.step(Some(1.0), None, StepKind { is_timed, ..USUAL });
        }
        assert_eq!(measured(&totals, 1, 8).phase_seconds["data_wait"], 0.1);
    }

    #[test]
    fn a_flood_stays_bounded() {
        let mut totals = Totals::default();
        for step in 0..3 * KEPT {
            totals.phase(&format!("phase {step}"), 1.0);
            totals.metric(&format!("metric {step}"), 1.0);
            totals.metric("same", 1.0);
            if step % KEPT == 0 {
                totals.step(None, None, USUAL);
            }
        }
        assert!(totals.metrics.len() <= 256 && totals.phases.len() <= 256);
    }

    #[test]
    fn the_newest_samples_stay_when_points_are_dropped() {
        let begin = Instant::now();
        let at = |second: usize| begin + Duration::from_secs(second as u64);
        let mut handed_out = HandedOut::default();
        (1..KEPT).for_each(|second| handed_out.push(at(second), Some(0.0)));
        handed_out.push(at(KEPT), Some(64.0));
        assert!(handed_out.points.len() < KEPT);
        assert_eq!(handed_out.rate((at(KEPT - 4), at(KEPT))), Some(16.0));
    }

    #[test]
    fn a_rate_is_that_of_the_time_between() {
        let begin = Instant::now();
        let at = |tenths: u32| begin + Duration::from_millis(100) * tenths;
        let mut handed_out = HandedOut::default();
        for step in 0..20_000 {
            let samples = if step < 10_000 { 1.0 } else { 4.0 };
            handed_out.push(at(step), Some(samples));
            handed_out.push(at(step), Some(samples));
        }
        let near = |rate: Option<f64>, right: f64| assert!((rate.unwrap() / right - 1.0).abs() < 0.01, "{rate:?}");
        near(handed_out.rate((at(1000), at(9000))), 20.0);
        near(handed_out.rate((at(11_000), at(19_000))), 80.0);
        assert_eq!(handed_out.rate((at(5), at(5))), None);
        handed_out.push(at(20_000), None);
        assert_eq!(handed_out.rate((at(1000), at(9000))), None, "a step has unknown samples");
    }
}
