//! Meters a probe's processes on the host: CPU time, reads from storage, pressure, throttling, memory.
//!
//! The kernel's counters only grow, so the difference of two readings is exact for the time between them. The measured
//! part of a probe is known only after the probe. So the meter keeps its readings, and compares the two readings
//! nearest to the ends of that part.

mod tree;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::cgroup::{Periods, Pressure, quotas};
use super::{pause_after, thread_time};
use crate::model::{Metric, Reading, Readings, Source};
use tree::{Tree, Usage};

/// The kernel's ticks per second of CPU time for user space (`USER_HZ`, time(7); 100 on x86-64 and on aarch64).
const TICKS_PER_SECOND: f64 = 100.0;
/// The most readings that are kept, four per second for 17 minutes. If there are more, every other reading is dropped.
const KEPT: usize = 4096;

/// The counters at some moment; an unreadable counter is absent.
#[derive(Debug, Clone)]
struct Sample {
    at: Instant,
    usage: Option<Usage>,
    machine: Pressure,
    /// The pressure in the probe's control group, while the probe is in it.
    group: Option<Pressure>,
    /// The counters of each group in `HostMeter::quotas`, in the same order.
    periods: Vec<Option<Periods>>,
}

/// Reads the counters of a process and its descendants.
#[derive(Debug)]
pub struct HostMeter {
    proc: PathBuf,
    tree: Tree,
    /// The probe's own control group of version 2, if it has one.
    group: Option<PathBuf>,
    /// `cpu.stat` of each group with a quota.
    quotas: Vec<PathBuf>,
    samples: Vec<Sample>,
    /// Memory that the processes held, in bytes.
    held: Vec<(Instant, u64)>,
    next: Option<Instant>,
    /// True for a meter of this process, which can reuse a recent reading of another such meter.
    is_shared: bool,
}

/// The meter that reads for all meters of this process, with its last reading.
static OWN: Mutex<Option<HostMeter>> = Mutex::new(None);

impl HostMeter {
    /// The shortest time between two readings.
    const EVERY: Duration = Duration::from_millis(250);

    /// Makes a meter of a process and its descendants. Their control group (version 2) at `group` need not exist yet.
    pub fn new(root: u32, group: Option<PathBuf>) -> Self {
        Self::under(Path::new("/proc"), Path::new("/sys/fs/cgroup"), root, group)
    }

    /// Makes a meter of this process. Meters in several threads that read at the same time share one reading.
    /// Otherwise, with 64 threads, each of 64 meters would read the files in `/proc/PID/task` of all 64 threads.
    pub fn own() -> Self {
        Self { is_shared: true, ..Self::new(std::process::id(), None) }
    }

    fn under(proc: &Path, cgroup_root: &Path, root: u32, group: Option<PathBuf>) -> Self {
        let (proc, tree, quotas) = (proc.to_owned(), Tree::new(proc, root), quotas(proc, cgroup_root));
        Self { proc, tree, group, quotas, samples: Vec::new(), held: Vec::new(), next: None, is_shared: false }
    }

    /// Reads the counters now.
    pub fn look(&mut self) {
        self.look_at(Instant::now());
    }

    /// Reads the counters at most four times a second, less often if that takes long. Returns when to read next.
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
            machine: Pressure::read(|name| self.proc.join("pressure").join(name)),
            group: self.group.as_deref().and_then(Pressure::of_group),
            periods: self.quotas.iter().map(|stat| Periods::read(stat)).collect(),
        }
    }

    /// Returns the processes at the last reading, the root first.
    pub fn pids(&self) -> &[u32] {
        self.tree.pids()
    }

    /// Records the memory that the processes hold, in bytes.
    pub fn holds(&mut self, at: Instant, bytes: u64) {
        self.held.push((at, bytes));
        thin_out(&mut self.held);
    }

    /// Returns the readings between two moments, from the nearest samples; counters' readings need two samples.
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
            put(&mut readings, Metric::HostMemory, bytes as f64, Source::Proc);
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

    /// Returns the first and last sample in the probe's group, if they span at least 80% of the period. The probe is moved
    /// into the group after its start.
    fn in_group(&self, from: Instant, to: Instant) -> Option<(&Sample, Pressure, &Sample, Pressure)> {
        /// The share of the period that counts as nearly all of it: a round number.
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
    // If quotas are nested, use the highest throttled share.
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
    now.saturating_sub(then) as f64
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
mod tests {
    use std::fs;

    use super::*;
    use crate::machine::tests::write;

    /// The files of a machine, in a folder of their own.
    struct Machine {
        folder: tempfile::TempDir,
        begin: Instant,
    }

    impl Machine {
        fn new() -> Self {
            let machine = Self { folder: tempfile::tempdir().unwrap(), begin: Instant::now() };
            machine.process(10, 1, [1, 0, 0, 0], Some(0));
            machine
        }

        fn write(&self, path: &str, text: &str) {
            write(self.folder.path(), path, text);
        }

        fn remove(&self, path: &str) {
            fs::remove_dir_all(self.folder.path().join(path)).unwrap();
        }

        /// Writes a process with its user and system time, and the times of its children.
        fn process(&self, pid: u32, parent: u32, ticks: [u64; 4], read_bytes: Option<u64>) {
            let [user, system, child_user, child_system] = ticks;
            let stat = format!(
                "{pid} (a ) name (x) S {parent} 1 1 0 -1 4194304 9 9 0 0 {user} {system} {child_user} {child_system} 20 0\n"
            );
            self.write(&format!("proc/{pid}/stat"), &stat);
            if let Some(bytes) = read_bytes {
                self.write(&format!("proc/{pid}/io"), &format!("rchar: 999\nread_bytes: {bytes}\nwrite_bytes: 7\n"));
            }
        }

        fn meter(&self) -> HostMeter {
            let (proc, cgroup) = (self.folder.path().join("proc"), self.folder.path().join("cgroup"));
            HostMeter::under(&proc, &cgroup, 10, Some(cgroup.join("job/gputune-10")))
        }

        fn at(&self, seconds: f64) -> Instant {
            self.begin + Duration::from_secs_f64(seconds)
        }

        fn readings(&self, meter: &HostMeter, from: f64, to: f64) -> Readings {
            meter.readings(self.at(from), self.at(to))
        }
    }

    fn value(readings: &Readings, metric: Metric) -> Option<f64> {
        readings.get(&metric).map(|reading| reading.value)
    }

    #[test]
    fn the_looks_nearest_to_the_ends_are_compared() {
        let machine = Machine::new();
        let mut meter = machine.meter();
        // A busy warm-up of two seconds, then half a CPU and 1000 bytes each second.
        for (second, ticks) in [(0, 0), (1, 400), (2, 800), (3, 850), (4, 900), (5, 950)] {
            machine.process(11, 10, [ticks, 0, 0, 0], Some(second * 1000));
            meter.look_at(machine.at(second as f64));
            meter.holds(machine.at(second as f64), 100 - second);
        }
        let readings = machine.readings(&meter, 2.2, 4.9);
        assert_eq!(readings[&Metric::CpuCores], Reading { value: 0.5, source: Source::Proc });
        assert_eq!(readings[&Metric::ReadRate], Reading { value: 1000.0, source: Source::Proc });
        assert_eq!(readings[&Metric::HostMemory], Reading { value: 97.0, source: Source::Proc });
        assert_eq!(value(&machine.readings(&meter, 0.0, 5.0), Metric::CpuCores), Some(1.9));
        let short = machine.readings(&meter, 2.8, 3.1);
        assert_eq!(value(&short, Metric::CpuCores), None, "one look says nothing");
        assert_eq!(value(&short, Metric::HostMemory), Some(97.0));
    }

    #[test]
    fn what_ended_between_two_looks_is_not_lost() {
        for lists_children in [false, true] {
            let machine = Machine::new();
            if lists_children {
                machine.write("proc/10/task/10/children", "11 ");
                machine.write("proc/11/task/11/children", "");
                machine.write("proc/11/task/12/children", "13 ");
            }
            machine.process(11, 10, [10, 0, 0, 0], Some(5));
            machine.process(13, 11, [100, 20, 0, 0], Some(50));
            machine.process(99, 1, [70_000, 0, 0, 0], Some(9_000_000));
            let mut meter = machine.meter();
            assert_eq!(meter.tree.lists_children, lists_children);
            let used = |meter: &mut HostMeter| meter.tree.usage().unwrap();
            assert_eq!(used(&mut meter), Usage { ticks: 131, read_bytes: Some(55) });
            // The parent of process 13 waited for it.
            machine.remove("proc/13");
            machine.process(11, 10, [11, 0, 110, 22], Some(70));
            assert_eq!(used(&mut meter), Usage { ticks: 144, read_bytes: Some(70) });
            // No process waits for process 14.
            machine.process(14, 11, [30, 0, 0, 0], Some(8));
            if lists_children {
                machine.write("proc/11/task/11/children", "14 ");
                machine.write("proc/11/task/12/children", "");
            }
            assert_eq!(used(&mut meter), Usage { ticks: 174, read_bytes: Some(78) });
            machine.remove("proc/14");
            machine.process(11, 10, [13, 0, 110, 22], Some(70));
            assert_eq!(used(&mut meter), Usage { ticks: 174, read_bytes: Some(78) }, "it does not fall");
            machine.process(11, 10, [18, 0, 110, 22], Some(71));
            assert_eq!(used(&mut meter), Usage { ticks: 179, read_bytes: Some(79) });
            machine.remove("proc/10");
            assert_eq!(meter.tree.usage(), None, "the tree is gone");
        }
    }

    #[test]
    fn a_process_that_does_not_let_itself_be_looked_at_makes_the_reads_absent() {
        let machine = Machine::new();
        machine.process(11, 10, [3, 0, 0, 0], None);
        let mut meter = machine.meter();
        assert_eq!(meter.tree.usage(), Some(Usage { ticks: 4, read_bytes: None }));
        machine.process(11, 10, [3, 0, 0, 0], Some(6));
        assert_eq!(meter.tree.usage(), Some(Usage { ticks: 4, read_bytes: Some(6) }));
    }

    #[test]
    fn pressure_is_the_groups_while_the_probe_is_in_it_and_else_the_machines() {
        let pressure = |total: u64| {
            format!(
                "some avg10=1.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
            )
        };
        let machine = Machine::new();
        let mut meter = machine.meter();
        let set = |second: u64, of_group: Option<&str>| {
            machine.write("proc/pressure/cpu", &pressure(second * 250_000));
            machine.write("proc/pressure/io", &pressure(second * 125_000));
            if let Some(populated) = of_group {
                machine.write("cgroup/job/gputune-10/cgroup.events", &format!("populated {populated}\nfrozen 0\n"));
                machine.write("cgroup/job/gputune-10/cpu.pressure", &pressure(second * 500_000));
                machine.write("cgroup/job/gputune-10/memory.pressure", &pressure(second * 2_000_000));
            }
        };
        for (second, of_group) in [(0, None), (1, Some("0")), (2, Some("1")), (3, Some("1"))] {
            set(second, of_group);
            meter.look_at(machine.at(second as f64));
        }
        let readings = machine.readings(&meter, 0.0, 3.0);
        assert_eq!(readings[&Metric::CpuPressure], Reading { value: 0.25, source: Source::Proc });
        assert_eq!(readings[&Metric::IoPressure], Reading { value: 0.125, source: Source::Proc });
        assert!(!readings.contains_key(&Metric::MemoryPressure), "the file is not there");
        let readings = machine.readings(&meter, 2.0, 3.0);
        assert_eq!(readings[&Metric::CpuPressure], Reading { value: 0.5, source: Source::Cgroup });
        assert_eq!(readings[&Metric::MemoryPressure].value, 1.0, "not more than all of the time");
        assert!(!readings.contains_key(&Metric::IoPressure));
    }

    #[test]
    fn the_quota_that_holds_back_most_counts() {
        for (line, folder, quota, none, limit) in [
            ("0::/job/inner\n", "cgroup", "cpu.max", "max 100000\n", "50000 100000\n"),
            ("4:cpu,cpuacct:/job/inner\n", "cgroup/cpu", "cpu.cfs_quota_us", "-1\n", "50000\n"),
        ] {
            let machine = Machine::new();
            machine.write("proc/self/cgroup", line);
            for (group, text) in [("", none), ("job/", limit), ("job/inner/", limit)] {
                machine.write(&format!("{folder}/{group}{quota}"), text);
                machine.write(&format!("{folder}/{group}cpu.cfs_period_us"), "100000\n");
            }
            let set = |group: &str, all: u64, throttled: u64| {
                let text = format!("usage_usec 5\nnr_periods {all}\nnr_throttled {throttled}\nthrottled_usec 77\n");
                machine.write(&format!("{folder}/{group}/cpu.stat"), &text);
            };
            set("job", 10, 5);
            set("job/inner", 10, 0);
            let mut meter = machine.meter();
            assert_eq!(meter.quotas.len(), 2, "{line}");
            meter.look_at(machine.at(0.0));
            set("job", 30, 10);
            set("job/inner", 20, 1);
            meter.look_at(machine.at(2.0));
            let readings = machine.readings(&meter, 0.0, 2.0);
            assert_eq!(readings[&Metric::CpuThrottled], Reading { value: 0.25, source: Source::Cgroup });
        }
        let machine = Machine::new();
        machine.write("proc/self/cgroup", "0::/\n");
        machine.write("cgroup/cpu.max", "max 100000\n");
        assert!(machine.meter().quotas.is_empty(), "no quota, no throttling");
    }

    #[test]
    fn where_nothing_can_be_read_nothing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let mut meter = HostMeter::under(&missing, &missing, 10, None);
        let begin = Instant::now();
        (0..3).for_each(|second| meter.look_at(begin + Duration::from_secs(second)));
        assert_eq!(meter.readings(begin, begin + Duration::from_secs(2)), Readings::new());
        for text in ["", "10", "10 (x) S", "10 (x) S a b c", ")", "\u{0}"] {
            write(folder.path(), "proc/10/stat", text);
            let mut meter = HostMeter::under(&folder.path().join("proc"), Path::new("/missing"), 10, None);
            meter.look();
            assert!(meter.samples[0].usage.is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_long_probe_keeps_its_ends() {
        let machine = Machine::new();
        let mut meter = machine.meter();
        for second in 0..20_000_u32 {
            meter.holds(machine.at(f64::from(second)), u64::from(second));
        }
        assert!(meter.held.len() <= KEPT && meter.held.last().is_some_and(|(_, bytes)| *bytes == 19_999));
        assert_eq!(value(&machine.readings(&meter, 0.0, 30_000.0), Metric::HostMemory), Some(19_999.0));
    }

    #[test]
    fn meters_of_this_process_share_a_reading() {
        let mut meters = [HostMeter::own(), HostMeter::own()];
        let begin = Instant::now();
        meters.iter_mut().for_each(HostMeter::look);
        std::thread::sleep(Duration::from_millis(50));
        meters.iter_mut().for_each(HostMeter::look);
        let [one, other] = &meters;
        let moments = |meter: &HostMeter| meter.samples.iter().map(|sample| sample.at).collect::<Vec<_>>();
        // Other tests of this process may have read between the two.
        let shared = moments(one).iter().filter(|at| moments(other).contains(at)).count();
        assert!(shared > 0, "{:?} {:?}", moments(one), moments(other));
        assert!(one.samples[0].at < one.samples[1].at);
        assert!(value(&one.readings(begin, Instant::now()), Metric::CpuCores).is_some());
    }
}
