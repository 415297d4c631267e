//! Summarises a probe over its time in a few points, kept next to its log.
//!
//! The summary is made after the probe, from steps and readings that were kept anyway. So it costs nothing during the measurement.
//! It is not in the journal: no decision depends on it, and reading ten thousand trials must stay quick.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::measuring::window::Window;
use super::scratch::write_whole;
use crate::model::{Metric, Readings};

/// Throughput and readings of the machine over the time of a probe, in parts of equal length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    /// The length of a part, in seconds.
    pub every_s: f64,
    /// Work per second in each part; `None` for a part in which no step ended.
    pub throughput: Vec<Option<f64>>,
    /// CPU time of the probe's processes, in cores.
    pub cpu_cores: Vec<Option<f64>>,
    /// The largest memory of the probe's processes, in bytes.
    pub host_memory_bytes: Vec<Option<f64>>,
    /// The readings of the GPUs, each over the seconds around the part. The value is the mean of all GPUs; for memory, it is the
    /// maximum of all GPUs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gpus: BTreeMap<Metric, Vec<Option<f64>>>,
}

impl Timeline {
    /// The most parts. A round number.
    pub const PARTS: u32 = 60;

    /// The metrics of GPUs in a timeline.
    pub(super) const OF_GPUS: [Metric; 7] = [
        Metric::SmActive,
        Metric::TensorActive,
        Metric::DramActive,
        Metric::GpuBusy,
        Metric::MemoryOwn,
        Metric::Power,
        Metric::SmClock,
    ];

    /// Returns the file of a trial, relative to the folder of its search.
    pub fn name(number: u32) -> PathBuf {
        PathBuf::from(format!("timelines/{number:04}.json"))
    }

    /// Reads the timeline of a trial; `None` if no readable timeline exists.
    pub fn read(folder: &Path, number: u32) -> Option<Self> {
        /// More bytes than sixty parts need. A longer file is not a timeline.
        const LONGEST: u64 = 1 << 16;
        let path = folder.join(Self::name(number));
        let is_short = std::fs::metadata(&path).is_ok_and(|file| file.len() <= LONGEST);
        serde_json::from_slice(&std::fs::read(path).ok().filter(|_| is_short)?).ok()
    }

    /// Returns the number of its values, including missing values.
    #[cfg(feature = "cli")]
    pub(crate) fn numbers(&self) -> usize {
        self.throughput.len() * (3 + self.gpus.len())
    }

    /// Makes the timeline of a probe that ran between two moments. `readings` reads the machine's counters over a time,
    /// and `gpus` returns the GPU readings around a moment: the middle of a part.
    pub(super) fn of<'g>(
        (begin, end): (Instant, Instant),
        window: &Window,
        readings: impl Fn(Instant, Instant) -> Readings,
        gpus: impl Fn(Instant) -> Option<&'g BTreeMap<Metric, f64>>,
    ) -> Self {
        /// A part has about two readings of the counters, which are read four times a second.
        const SHORTEST: Duration = Duration::from_millis(500);
        let whole = end.saturating_duration_since(begin);
        let parts = (1..=Self::PARTS).rev().find(|parts| whole / *parts >= SHORTEST).unwrap_or(1);
        let every = whole / parts;
        let mut timeline = Self { every_s: three_digits(every.as_secs_f64()), ..Self::default() };
        for part in 0..parts {
            let (from, to) = (begin + every * part, begin + every * (part + 1));
            let told = readings(from, to);
            let value = |metric: Metric| told.get(&metric).map(|reading| three_digits(reading.value));
            let seconds = ((every * part).as_secs_f64(), (every * (part + 1)).as_secs_f64());
            timeline.throughput.push(window.rate_between(seconds).map(three_digits));
            timeline.cpu_cores.push(value(Metric::CpuCores));
            timeline.host_memory_bytes.push(value(Metric::HostMemory));
            let told = gpus(from + every / 2);
            for metric in Self::OF_GPUS {
                let value = told.and_then(|told| told.get(&metric).copied()).map(three_digits);
                timeline.gpus.entry(metric).or_default().push(value);
            }
        }
        timeline.gpus.retain(|_, values| values.iter().any(Option::is_some));
        timeline
    }

    /// Writes the timeline. It is not part of the result, so an error here does not fail the probe.
    pub(super) fn keep(&self, folder: &Path, number: u32) {
        let path = folder.join(Self::name(number));
        let text = serde_json::to_vec(self).unwrap_or_default();
        let _ = std::fs::create_dir_all(path.parent().unwrap_or(folder)).and_then(|()| write_whole(&path, &text));
    }
}

/// Rounds a number to three digits after the first. More digits cannot be seen.
fn three_digits(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Reading, Source};
    use crate::probe::measuring::window::StepReport;

    #[test]
    fn however_long_a_probe_it_has_sixty_parts_at_most_and_reads_back() {
        let begin = Instant::now();
        let cores = |_, _| Readings::from([(Metric::CpuCores, Reading { value: 1.5, source: Source::Proc })]);
        for (seconds, parts) in [(0.0, 1), (0.3, 1), (2.0, 4), (7200.0, 60)] {
            let end = begin + Duration::from_secs_f64(seconds);
            let busy = BTreeMap::from([(Metric::GpuBusy, 0.98765)]);
            let timeline = Timeline::of((begin, end), &Window::default(), cores, |_| Some(&busy));
            assert_eq!(timeline.throughput, vec![None; parts], "{seconds}");
            assert_eq!(timeline.cpu_cores, vec![Some(1.5); parts]);
            assert_eq!(timeline.gpus, BTreeMap::from([(Metric::GpuBusy, vec![Some(0.9877); parts])]));
            let folder = tempfile::tempdir().unwrap();
            timeline.keep(folder.path(), 7);
            assert_eq!(Timeline::read(folder.path(), 7), Some(timeline));
            assert_eq!(Timeline::read(folder.path(), 8), None);
        }
    }

    #[test]
    fn work_counts_in_the_part_in_which_its_step_ended() {
        let mut window = Window::default();
        for tenth in 1..=20_u32 {
            let at = Duration::from_millis(100) * tenth;
            window.push(StepReport { at, seconds: 0.1, amount: 10.0, waited: 0.0, mark: None });
        }
        let begin = Instant::now();
        let timeline = Timeline::of((begin, begin + Duration::from_secs(4)), &window, |_, _| Readings::new(), |_| None);
        assert!(timeline.gpus.is_empty());
        let rates: Vec<f64> = timeline.throughput.iter().map(|rate| rate.unwrap_or(0.0)).collect();
        assert!(rates[..4].iter().all(|rate| (80.0..=120.0).contains(rate)), "{rates:?}");
        assert_eq!(rates[4..], [0.0; 4]);
    }
}
