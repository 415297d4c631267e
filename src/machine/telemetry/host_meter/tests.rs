//! Tests the meter on recorded files, and on this machine.

use std::fs;
use std::path::Path;

use super::*;

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
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
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

    fn group(&self) -> PathBuf {
        self.folder.path().join("cgroup/job/gputune-10")
    }

    fn meter(&self) -> HostMeter {
        HostMeter::under(&self.folder.path().join("proc"), &self.folder.path().join("cgroup"), 10, Some(self.group()))
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
        // Its parent waited for it.
        machine.remove("proc/13");
        machine.process(11, 10, [11, 0, 110, 22], Some(70));
        assert_eq!(used(&mut meter), Usage { ticks: 144, read_bytes: Some(70) });
        // No process waits for this process.
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
fn processes_outside_are_read_once() {
    let machine = Machine::new();
    for pid in 100..200 {
        machine.process(pid, 1, [1, 0, 0, 0], None);
    }
    machine.process(1, 0, [1, 0, 0, 0], None);
    machine.process(300, 299, [1, 0, 0, 0], None);
    let mut meter = machine.meter();
    assert_eq!(meter.tree.usage().unwrap().ticks, 1);
    assert!(meter.tree.foreign.len() == 101 && !meter.tree.foreign.contains(&300), "{:?}", meter.tree.foreign);
    // Known foreign processes are not read again, so they may change.
    machine.process(150, 10, [1000, 0, 0, 0], None);
    machine.process(299, 10, [5, 0, 0, 0], None);
    assert_eq!(meter.tree.usage().unwrap().ticks, 7);
    machine.remove("proc/150");
    assert_eq!(meter.tree.usage().unwrap().ticks, 7);
    machine.process(150, 10, [1000, 0, 0, 0], None);
    assert_eq!(meter.tree.usage().unwrap().ticks, 1007, "another process by the same number");
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
    for (line, folder, quota, stat) in [
        ("0::/job/inner\n", "cgroup", "cpu.max", "cpu.stat"),
        ("4:cpu,cpuacct:/job/inner\n", "cgroup/cpu", "cpu.cfs_quota_us", "cpu.stat"),
    ] {
        let machine = Machine::new();
        machine.write("proc/self/cgroup", line);
        machine.write(&format!("{folder}/{quota}"), if quota == "cpu.max" { "max 100000\n" } else { "-1\n" });
        for group in ["job", "job/inner"] {
            machine.write(&format!("{folder}/{group}/{quota}"), "50000 100000\n");
        }
        let set = |group: &str, all: u64, throttled: u64| {
            let text = format!("usage_usec 5\nnr_periods {all}\nnr_throttled {throttled}\nthrottled_usec 77\n");
            machine.write(&format!("{folder}/{group}/{stat}"), &text);
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
        fs::create_dir_all(folder.path().join("proc/10")).unwrap();
        fs::write(folder.path().join("proc/10/stat"), text).unwrap();
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
fn this_process_uses_the_processor_and_what_it_waited_for_counts() {
    let mut meter = HostMeter::new(std::process::id(), None);
    meter.look();
    let begin = Instant::now();
    let burn = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
    assert!(std::process::Command::new("sh").args(["-c", burn]).status().unwrap().success());
    // A tick is 10 ms.
    std::thread::sleep(Duration::from_millis(20));
    meter.look();
    let cores = value(&meter.readings(begin, Instant::now()), Metric::CpuCores).unwrap();
    assert!(cores > 0.05, "{cores}");
    let next = meter.look_in_time();
    let looks = meter.samples.len();
    assert_eq!((meter.look_in_time(), meter.samples.len()), (next, looks), "it is not time yet");
    assert!(next > begin && thread_time() > Duration::ZERO);
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
