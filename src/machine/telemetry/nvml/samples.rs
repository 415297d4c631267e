//! Keeps the readings of one GPU in order of time, and the samples of the driver's own buffers.

use std::time::{Duration, Instant};

use nvml_wrapper::enum_wrappers::device::Sampling;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::{Device, GpmSample};

use super::Window;
use super::ask::{Question, Told};

/// The most readings that are kept; at this number, every other reading of the older half is dropped.
const KEPT: usize = 512;

/// A reading of the counters. Readings are frequent, so that one is near each end of the window, known only afterwards.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) at: Instant,
    /// Joules since the driver was loaded.
    pub(super) energy: Told<f64>,
    /// Seconds since the driver was loaded in which the power limit lowered the clocks.
    pub(super) by_power: Told<f64>,
    /// Seconds since the driver was loaded in which heat lowered the clocks.
    pub(super) by_heat: Told<f64>,
    pub(super) gpm: Option<GpmSample<'static>>,
}

/// A reading of the states, about once a second.
#[derive(Debug)]
pub(super) struct States {
    pub(super) at: Instant,
    pub(super) memory: Told<Memory>,
    /// Processes with the memory that each holds, in bytes, if reported.
    pub(super) processes: Told<Vec<(u32, Option<u64>)>>,
    /// Watts.
    pub(super) power: Told<f64>,
    /// Megahertz.
    pub(super) sm_clock: Told<f64>,
    pub(super) memory_clock: Told<f64>,
    /// The reasons for low clocks, as bits; see [`super::changes`].
    pub(super) reasons: Told<u64>,
    /// The share of the last sample period in which some kernel ran.
    pub(super) busy: Told<f64>,
    /// Each process with the share of time in which its kernels ran.
    pub(super) shares: Told<Vec<(u32, f64)>>,
}

/// The memory of a GPU, in bytes, without the driver's own memory if that is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) used: u64,
    pub(super) total: u64,
}

/// Adds a reading, and drops old readings if there are too many.
pub(super) fn keep<T>(readings: &mut Vec<T>, reading: T) {
    if readings.len() >= KEPT {
        let mut place = 0;
        readings.retain(|_| {
            place += 1;
            place > KEPT / 2 || place % 2 == 1
        });
    }
    readings.push(reading);
}

/// Returns how far outside a window a reading may lie and still count.
fn margin(window: Window) -> Duration {
    const LEAST: Duration = Duration::from_millis(100);
    LEAST.max(window.length() / 10)
}

/// Returns the first and the last reading within a window and its [`margin`], if they span at least half of the window.
pub(super) fn ends<T>(readings: &[T], at: impl Fn(&T) -> Instant, window: Window) -> Option<(&T, &T)> {
    /// NVML refreshes GPM's samples no faster than this (nvml.h, `nvmlGpmMetricsGet`).
    const SHORTEST: Duration = Duration::from_millis(100);
    let margin = margin(window);
    let inside = |reading: &&T| {
        let time = at(reading);
        time + margin >= window.begin && time <= window.end + margin
    };
    let first = readings.iter().find(inside)?;
    let last = readings.iter().rev().find(inside)?;
    let between = at(last).saturating_duration_since(at(first));
    (between >= SHORTEST.max(window.length() / 2)).then_some((first, last))
}

/// Returns the readings within a window and its [`margin`], or else the last reading before the window's end.
pub(super) fn within(readings: &[States], window: Window) -> Vec<&States> {
    let margin = margin(window);
    let inside = |reading: &&States| reading.at + margin >= window.begin && reading.at <= window.end + margin;
    let found: Vec<&States> = readings.iter().filter(inside).collect();
    if found.is_empty() {
        return readings.iter().rev().find(|reading| reading.at <= window.end).into_iter().collect();
    }
    found
}

/// The most samples that are kept; the driver makes six to fifty a second.
const SAMPLES_KEPT: usize = 1 << 14;

/// Samples of one kind; each covers the time since the previous sample.
#[derive(Debug)]
pub(super) struct Samples {
    kind: Sampling,
    /// The largest valid number; samples above it are dropped.
    largest: f64,
    question: Question,
    /// The time of each sample in microseconds since 1970, and its number, in the order of time.
    kept: Vec<(u64, f64)>,
    failure: Option<String>,
}

impl Samples {
    pub(super) fn of(kind: Sampling, largest: f64) -> Self {
        Self { kind, largest, question: Question::default(), kept: Vec::new(), failure: None }
    }

    /// Takes the samples that the driver has gathered since the last call.
    pub(super) fn drain(&mut self, device: &Device<'_>) {
        let seen = self.kept.last().map(|(time, _)| *time);
        let kind = self.kind;
        match self.question.ask(|| device.samples(kind, seen)) {
            Ok(samples) => {
                for sample in samples {
                    self.push(sample.timestamp, number(&sample.value));
                }
            }
            // The buffer of a device that has just been opened may still be empty.
            Err(failure) => self.failure = Some(failure),
        }
    }

    /// Adds a sample if it is valid and newer. Unfilled entries of the driver's buffer have the time 0, and some samples come twice.
    fn push(&mut self, time: u64, number: f64) {
        let is_new = self.kept.last().is_none_or(|(last, _)| time > *last);
        if time == 0 || !is_new || !(0.0..=self.largest).contains(&number) {
            return;
        }
        if self.kept.len() >= SAMPLES_KEPT {
            self.kept.drain(..SAMPLES_KEPT / 2);
        }
        self.kept.push((time, number));
    }

    /// Returns the mean between two times in microseconds since 1970. Each sample weighs as much as the time it covers.
    pub(super) fn mean(&self, from: u64, to: u64) -> Told<f64> {
        let (mut sum, mut covered) = (0.0, 0.0);
        for pair in self.kept.windows(2) {
            let ((before, _), (time, number)) = (pair[0], pair[1]);
            let weight = time.min(to).saturating_sub(before.max(from)) as f64;
            sum += weight * number;
            covered += weight;
        }
        let is_covered = covered * 2.0 >= to.saturating_sub(from) as f64 && covered > 0.0;
        match &self.failure {
            _ if is_covered => Ok(sum / covered),
            Some(failure) => Err(failure.clone()),
            None => Err("too few samples in the measured time".to_owned()),
        }
    }
}

pub(super) fn number(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(number) => number,
        SampleValue::U32(number) => f64::from(number),
        SampleValue::U64(number) => number as f64,
        SampleValue::I64(number) => number as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readings_at_both_ends_cover_the_window() {
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        let readings: Vec<Instant> = (0..20).map(|number| at(number * 200)).collect();
        let of = |from: u64, to: u64| {
            let found = ends(&readings, |reading| *reading, Window { begin: at(from), end: at(to) });
            found.map(|(first, last)| ((*first - begin).as_millis(), (*last - begin).as_millis()))
        };
        assert_eq!(of(1000, 3000), Some((800, 3200)));
        assert_eq!(of(1050, 2990), Some((1000, 3000)));
        assert_eq!(of(1090, 1590), Some((1000, 1600)));
        assert_eq!(of(1110, 1290), None, "too short");
        assert_eq!(of(3500, 9000), None, "the readings end long before the window's end");
    }

    #[test]
    fn old_readings_are_thinned() {
        let mut readings = Vec::new();
        (0..2000).for_each(|number| keep(&mut readings, number));
        assert!(readings.len() <= KEPT && readings.is_sorted());
        assert_eq!((readings[0], readings[readings.len() - 1]), (0, 1999));
    }

    #[test]
    fn each_sample_counts_for_the_time_that_it_stands_for() {
        let mut samples = Samples::of(Sampling::GpuUtilization, 100.0);
        for (time, number) in [(0, 50.0), (1_000, 10.0), (2_000, 100.0), (2_000, 0.0), (5_000, 0.0), (6_000, 101.0)] {
            samples.push(time, number);
        }
        assert_eq!(samples.mean(1_000, 5_000), Ok(25.0));
        assert_eq!(samples.mean(1_500, 2_500), Ok(50.0));
        assert!(samples.mean(4_000, 9_000).is_err(), "most of it has no samples");
        assert!(Samples::of(Sampling::Power, 1e9).mean(0, 1).is_err());
    }
}
