//! Meters a probe's processes on the host: CPU time, reads from storage, pressure, throttling, memory.
//!
//! The kernel's counters only grow, so the difference of two readings is exact for the time between them. The measured part
//! of a probe becomes known only afterwards. So the readings are kept, and the readings nearest to the ends of that part are
//! compared.

mod tree;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{pause_after, thread_time};
use crate::model::{Metric, Reading, Readings, Source};
use tree::{Tree, Usage};
use waiting::{Periods, Pressure, Quota};

/// The kernel's ticks per second of CPU time for user space (`USER_HZ`, time(7); 100 on x86-64 and on aarch64).
const TICKS_PER_SECOND: f64 = 100.0;

/// The most readings that are kept: four per second for a quarter of an hour. At this number, every other reading is
/// dropped.
const KEPT: usize = 4096;

/// The counters at some moment; an unreadable counter is absent.
#[derive(Debug, Clone)]
struct Sample {
    at: Instant,
    usage: Option<Usage>,
    /// The pressure on the whole machine.
    machine: Pressure,
    /// The pressure in the probe's control group, while the probe is in it.
    group: Option<Pressure>,
    /// In the order of the quotas.
    periods: Vec<Option<Periods>>,
}

/// Reads the counters of a process and its descendants.
#[derive(Debug)]
pub struct HostMeter {
    proc: PathBuf,
    tree: Tree,
    /// The probe's own control group of version 2, if it has one.
    group: Option<PathBuf>,
    quotas: Vec<Quota>,
    samples: Vec<Sample>,
    /// Memory that the processes held, in bytes.
    held: Vec<(Instant, u64)>,
    /// The time of the next reading.
    next: Option<Instant>,
    /// True if it meters this process, so that a recent reading of another such meter is as good as its own.
    is_shared: bool,
}

/// The meter that reads for all meters of this process, with its last reading.
static OWN: Mutex<Option<HostMeter>> = Mutex::new(None);

impl HostMeter {
    /// The shortest time between two readings.
    const EVERY: Duration = Duration::from_millis(250);

    /// Makes a meter of a process and its descendants. `group` is the folder of their own control group (version 2); it need
    /// not exist yet.
    pub fn new(root: u32, group: Option<PathBuf>) -> Self {
        Self::under(Path::new("/proc"), Path::new("/sys/fs/cgroup"), root, group)
    }

    /// Makes a meter of this process. Threads that read at the same time share one reading. Otherwise 64 slots, each with
    /// its meter, would each read the files of 64 threads.
    pub fn own() -> Self {
        Self { is_shared: true, ..Self::new(std::process::id(), None) }
    }

    fn under(proc: &Path, cgroup_root: &Path, root: u32, group: Option<PathBuf>) -> Self {
        Self {
            proc: proc.to_owned(),
            tree: Tree::new(proc, root),
            group,
            quotas: waiting::quotas(proc, cgroup_root),
            samples: Vec::new(),
            held: Vec::new(),
            next: None,
            is_shared: false,
        }
    }

    /// Reads the counters now.
    pub fn look(&mut self) {
        self.look_at(Instant::now());
    }

    /// Reads the counters if it is time: four times a second, or less often if a reading takes long. Returns the time of the
    /// next reading.
    pub fn look_in_time(&mut self) -> Instant {
        let begin = Instant::now();
        match self.next {
            Some(next) if begin < next => next,
            _ => {
                let before = thread_time();
                self.look_at(begin);
                let cost = thread_time().saturating_sub(before);
                *self.next.insert(begin + pause_after(cost, Self::EVERY))
            }
        }
    }

    fn look_at(&mut self, at: Instant) {
        let sample = if self.is_shared { Self::shared(at) } else { self.read(at) };
        self.samples.push(sample);
        thin_out(&mut self.samples);
    }

    /// Returns the last reading of this process, or a new reading if the last is old.
    fn shared(at: Instant) -> Sample {
        /// The time for which a reading counts as new, much shorter than the time between two readings of a meter.
        const NEW: Duration = Duration::from_millis(20);
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        let own = own.get_or_insert_with(|| Self::new(std::process::id(), None));
        let last = own.samples.pop().filter(|last| at.saturating_duration_since(last.at) < NEW);
        let sample = last.unwrap_or_else(|| own.read(at));
        own.samples.push(sample.clone());
        sample
    }

    fn read(&mut self, at: Instant) -> Sample {
        Sample {
            at,
            usage: self.tree.usage(),
            machine: Pressure::of_machine(&self.proc),
            group: self.group.as_deref().and_then(Pressure::of_group),
            periods: self.quotas.iter().map(Quota::periods).collect(),
        }
    }

    /// Returns the processes at the last reading, beginning with the first.
    pub fn pids(&self) -> &[u32] {
        self.tree.pids()
    }

    /// Records the memory that the processes hold, in bytes.
    pub fn holds(&mut self, at: Instant, bytes: u64) {
        self.held.push((at, bytes));
        thin_out(&mut self.held);
    }

    /// Returns the readings between two moments, if counters were read near both.
    pub fn readings(&self, from: Instant, to: Instant) -> Readings {
        let mut readings = Readings::new();
        if let Some((first, last)) = self.ends(from, to, |_| true) {
            usage_between(first, last, &mut readings);
            pressure_between((first, first.machine), (last, last.machine), Source::Proc, &mut readings);
        }
        if let Some((first, then, last, now)) = self.in_group(from, to) {
            readings.retain(|metric, _| !PRESSURES.contains(metric));
            pressure_between((first, then), (last, now), Source::Cgroup, &mut readings);
        }
        if let Some(bytes) = self.held_between(from, to) {
            put(&mut readings, Metric::HostMemory, float(bytes), Source::Proc);
        }
        readings
    }

    /// Returns the readings nearest to two moments among the readings that pass `has`; `None` if both are the same reading.
    fn ends(&self, from: Instant, to: Instant, has: fn(&Sample) -> bool) -> Option<(&Sample, &Sample)> {
        let nearest = |moment: Instant| {
            let distance = |sample: &&Sample| {
                sample.at.saturating_duration_since(moment).max(moment.saturating_duration_since(sample.at))
            };
            self.samples.iter().filter(|sample| has(sample)).min_by_key(distance)
        };
        let (first, last) = (nearest(from)?, nearest(to)?);
        (first.at < last.at).then_some((first, last))
    }

    /// Returns the ends of the time that the probe was in its group, if it covers nearly all of the time between two
    /// moments. The probe is moved into the group after its start.
    fn in_group(&self, from: Instant, to: Instant) -> Option<(&Sample, Pressure, &Sample, Pressure)> {
        /// The share of the time that counts as nearly all of it: a round number.
        const NEARLY_ALL: f64 = 0.8;
        let (first, last) = self.ends(from, to, |sample| sample.group.is_some())?;
        let is_covered = last.at.duration_since(first.at) >= to.saturating_duration_since(from).mul_f64(NEARLY_ALL);
        is_covered.then_some((first, first.group?, last, last.group?))
    }

    /// Returns the largest memory between two moments; if nothing was recorded between them, the previous value.
    fn held_between(&self, from: Instant, to: Instant) -> Option<u64> {
        let within = self.held.iter().filter(|(at, _)| (from..=to).contains(at)).map(|(_, bytes)| *bytes).max();
        within.or_else(|| self.held.iter().rev().find(|(at, _)| *at < from).map(|(_, bytes)| *bytes))
    }
}

fn usage_between(first: &Sample, last: &Sample, readings: &mut Readings) {
    let seconds = seconds_between(first, last);
    if let (Some(then), Some(now)) = (first.usage, last.usage) {
        let cores = rise(then.ticks, now.ticks) / TICKS_PER_SECOND / seconds;
        put(readings, Metric::CpuCores, cores, Source::Proc);
        if let (Some(then), Some(now)) = (then.read_bytes, now.read_bytes) {
            put(readings, Metric::ReadRate, rise(then, now) / seconds, Source::Proc);
        }
    }
    // The most throttling quota counts if quotas are nested.
    let throttled = first.periods.iter().zip(&last.periods);
    let shares = throttled.filter_map(|(then, now)| then.as_ref()?.share(now.as_ref()?));
    if let Some(share) = shares.max_by(f64::total_cmp) {
        put(readings, Metric::CpuThrottled, share, Source::Cgroup);
    }
}

const PRESSURES: [Metric; 3] = [Metric::CpuPressure, Metric::IoPressure, Metric::MemoryPressure];

fn pressure_between(
    (first, then): (&Sample, Pressure),
    (last, now): (&Sample, Pressure),
    source: Source,
    readings: &mut Readings,
) {
    const MICROSECONDS: f64 = 1e6;
    let pairs = [(then.cpu, now.cpu), (then.io, now.io), (then.memory, now.memory)];
    for (metric, (then, now)) in PRESSURES.into_iter().zip(pairs) {
        if let (Some(then), Some(now)) = (then, now) {
            let share = rise(then, now) / MICROSECONDS / seconds_between(first, last);
            put(readings, metric, share.min(1.0), source);
        }
    }
}

fn seconds_between(first: &Sample, last: &Sample) -> f64 {
    last.at.duration_since(first.at).as_secs_f64()
}

fn put(readings: &mut Readings, metric: Metric, value: f64, source: Source) {
    readings.insert(metric, Reading { value, source });
}

fn rise(then: u64, now: u64) -> f64 {
    float(now.saturating_sub(then))
}

fn float(number: u64) -> f64 {
    number as f64
}

/// Drops every other entry if there are too many; the newest stays.
fn thin_out<T>(entries: &mut Vec<T>) {
    if entries.len() >= KEPT {
        let mut is_kept = entries.len().is_multiple_of(2);
        entries.retain(|_| {
            is_kept = !is_kept;
            is_kept
        });
    }
}

#[cfg(test)]
mod tests;
