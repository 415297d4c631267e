//! What a probe's steps report beside their time: phases, memory, loss and further metrics.

use std::collections::{BTreeMap, VecDeque};

use super::FIRST_LOSSES;
use super::window::Throughput;
use crate::outcome::Measurement;
use crate::stats;

/// Values kept of each phase and metric; older ones are dropped.
const KEPT: usize = 4096;

/// Collects reports in bounded memory.
#[derive(Debug, Default)]
pub(super) struct Totals {
    phases: BTreeMap<String, VecDeque<f64>>,
    current: BTreeMap<String, f64>,
    metrics: BTreeMap<String, VecDeque<f64>>,
    loss: Option<f64>,
    first_losses: Vec<f64>,
    steps: usize,
    pub(super) peak_memory_bytes: Option<u64>,
    pub(super) memory_capacity_bytes: Option<u64>,
    pub(super) allocator_retries: Option<u64>,
}

impl Totals {
    /// Adds time spent in a phase of the step that is under way.
    pub(super) fn phase(&mut self, name: &str, seconds: f64) {
        const MOST: usize = 64;
        let known = self.current.contains_key(name) || self.current.len() < MOST;
        if known && seconds.is_finite() && seconds >= 0.0 {
            *self.current.entry(name.to_owned()).or_default() += seconds;
        }
    }

    /// Ends the step that is under way.
    pub(super) fn step(&mut self, loss: Option<f64>) {
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

    /// Whether the losses of the first steps are known, as many as are kept.
    pub(super) fn has_first_losses(&self) -> bool {
        self.first_losses.len() >= FIRST_LOSSES
    }

    /// Adds a further number that the step reports.
    pub(super) fn metric(&mut self, name: &str, number: f64) {
        const MOST: usize = 256;
        if number.is_finite() && (self.metrics.len() < MOST || self.metrics.contains_key(name)) {
            push(self.metrics.entry(name.to_owned()).or_default(), number);
        }
    }

    /// Takes a report of device memory; peaks are kept, and of several ranks the fullest counts.
    pub(super) fn memory(&mut self, peak_bytes: Option<u64>, capacity_bytes: Option<u64>, retries: Option<u64>) {
        self.peak_memory_bytes = self.peak_memory_bytes.max(peak_bytes);
        self.memory_capacity_bytes = capacity_bytes.or(self.memory_capacity_bytes);
        self.allocator_retries = self.allocator_retries.max(retries);
    }

    /// The measurement that these reports and a throughput make.
    pub(super) fn measurement(&self, throughput: &Throughput, unit: &str) -> Measurement {
        // The share of warm-up, since a rate that is printed stands for several steps.
        let (steady, all) = (throughput.steps.max(1), (throughput.steps + throughput.warmup_steps).max(1));
        let steady = usize::try_from(self.steps as u64 * steady / all).unwrap_or(KEPT).clamp(1, KEPT);
        let phase_seconds = self.phases.iter().filter_map(|(name, times)| {
            let steady: Vec<f64> = times.iter().rev().take(steady).copied().collect();
            Some((name.clone(), stats::mean(&steady)?))
        });
        let mut metrics: BTreeMap<String, f64> = self
            .metrics
            .iter()
            .filter_map(|(name, numbers)| {
                Some((name.clone(), stats::median(&Vec::from_iter(numbers.iter().copied()))?))
            })
            .collect();
        metrics.extend(self.loss.map(|loss| ("loss".to_owned(), loss)));
        Measurement {
            throughput: Some(throughput.estimate),
            unit: unit.to_owned(),
            steps: throughput.steps,
            warmup_steps: throughput.warmup_steps,
            step_seconds: Some(throughput.step_seconds),
            first_losses: self.first_losses.clone(),
            peak_memory_bytes: self.peak_memory_bytes,
            memory_capacity_bytes: self.memory_capacity_bytes,
            allocator_retries: self.allocator_retries,
            phase_seconds: phase_seconds.collect(),
            metrics,
            ..Measurement::default()
        }
    }
}

fn push(series: &mut VecDeque<f64>, number: f64) {
    if series.len() == KEPT {
        series.pop_front();
    }
    series.push_back(number);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::Estimate;

    fn measured(totals: &Totals, warmup_steps: u64, steps: u64) -> Measurement {
        let throughput = Throughput {
            estimate: Estimate::point(1.0),
            steps,
            warmup_steps,
            step_seconds: 1.0,
            measured: Duration::ZERO,
        };
        totals.measurement(&throughput, "samples/s")
    }

    #[test]
    fn a_phase_is_a_mean_over_the_steady_steps_and_absence_is_zero() {
        let mut totals = Totals::default();
        totals.phase("data_wait", 100.0);
        totals.step(Some(2.0));
        for _ in 0..2 {
            totals.phase("data_wait", 1.0);
            totals.phase("data_wait", 1.0);
            totals.step(None);
            totals.step(None);
        }
        let measurement = measured(&totals, 1, 4);
        assert_eq!(measurement.phase_seconds["data_wait"], 1.0);
        assert_eq!(measurement.metrics["loss"], 2.0);
    }

    #[test]
    fn memory_keeps_its_peak() {
        let mut totals = Totals::default();
        totals.memory(Some(5), Some(10), None);
        totals.memory(Some(3), None, Some(1));
        let measurement = measured(&totals, 0, 1);
        assert_eq!((measurement.peak_memory_bytes, measurement.memory_capacity_bytes), (Some(5), Some(10)));
        assert_eq!(measurement.allocator_retries, Some(1));
    }

    #[test]
    fn a_flood_stays_bounded() {
        let mut totals = Totals::default();
        for step in 0..3 * KEPT {
            totals.phase(&format!("phase {step}"), 1.0);
            totals.metric(&format!("metric {step}"), 1.0);
            totals.metric("same", 1.0);
            if step % KEPT == 0 {
                totals.step(None);
            }
        }
        assert!(totals.metrics.len() <= 256 && totals.phases.len() <= 256);
    }
}
