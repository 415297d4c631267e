//! Reads control groups: the groups of this process, their CPU quotas, and the time in which work waited (pressure).

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the number after a name at the beginning of a line.
pub(super) fn number_after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Returns the folders of this process's group for a controller: its own group first, then the groups above it.
/// Supports versions 1 and 2 of control groups (kernel documentation, admin-guide/cgroup-v2.rst and cgroup-v1/). If a
/// machine has both, version 2 is at `unified`, where systemd puts it.
pub(in crate::machine) fn folders(proc: &Path, root: &Path, controller: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let root = if controllers.is_empty() {
            Some(root.join("unified")).filter(|folder| folder.is_dir()).unwrap_or_else(|| root.to_owned())
        } else if controllers.split(',').any(|name| name == controller) {
            root.join(controller)
        } else {
            continue;
        };
        folders.extend(Path::new(group.trim_start_matches('/')).ancestors().map(|folder| root.join(folder)));
    }
    folders
}

/// Returns the number of cores that a group's quota allows to be busy. `None` without a quota: `max` in `cpu.max`
/// (version 2, admin-guide/cgroup-v2.rst), or -1 in `cpu.cfs_quota_us` (version 1, scheduler/sched-bwc.rst).
pub(in crate::machine) fn cpu_quota(folder: &Path) -> Option<f64> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let cores = |quota: &str, period: &str| {
        let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    };
    let second_version = || text("cpu.max")?.trim().split_once(' ').and_then(|(quota, period)| cores(quota, period));
    second_version().or_else(|| cores(&text("cpu.cfs_quota_us")?, &text("cpu.cfs_period_us")?))
}

/// The time in microseconds in which at least one task waited for a resource, as the kernel counts it: `total` in the
/// `some` line of each pressure file (kernel documentation, accounting/psi.rst; since Linux 4.20).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    pub(super) cpu: Option<u64>,
    pub(super) io: Option<u64>,
    pub(super) memory: Option<u64>,
}

impl Pressure {
    /// Reads the counts of a control group of version 2; `None` if the group is empty or reports no pressure.
    pub(super) fn of_group(folder: &Path) -> Option<Self> {
        let events = fs::read_to_string(folder.join("cgroup.events")).ok()?;
        if !events.lines().any(|line| line == "populated 1") {
            return None;
        }
        let pressure = Self::read(|name| folder.join(format!("{name}.pressure")));
        (pressure != Self::default()).then_some(pressure)
    }

    pub(super) fn read(file: impl Fn(&str) -> PathBuf) -> Self {
        Self { cpu: some_total(&file("cpu")), io: some_total(&file("io")), memory: some_total(&file("memory")) }
    }
}

/// Returns the total in a line like `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`.
fn some_total(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

/// The counts of a quota's periods in which the group ran. A period is usually 100 ms long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Periods {
    all: u64,
    /// The periods in which the quota was used up and a task had to wait.
    throttled: u64,
}

/// Returns the `cpu.stat` of each group with a quota, from this process's group outwards.
pub(super) fn quotas(proc: &Path, cgroup_root: &Path) -> Vec<PathBuf> {
    let folders = folders(proc, cgroup_root, "cpu").into_iter();
    folders.filter(|folder| cpu_quota(folder).is_some()).map(|folder| folder.join("cpu.stat")).collect()
}

impl Periods {
    /// Reads the counts from a group's `cpu.stat`.
    pub(super) fn read(stat: &Path) -> Option<Self> {
        let text = fs::read_to_string(stat).ok()?;
        Some(Self { all: number_after(&text, "nr_periods ")?, throttled: number_after(&text, "nr_throttled ")? })
    }

    /// Returns the share of the periods since `self` in which a task had to wait (the throttled time sums over CPUs).
    pub(super) fn share(&self, now: &Self) -> Option<f64> {
        let (all, throttled) = (now.all.checked_sub(self.all)?, now.throttled.checked_sub(self.throttled)?);
        Some((throttled as f64 / all.max(1) as f64).min(1.0))
    }
}
