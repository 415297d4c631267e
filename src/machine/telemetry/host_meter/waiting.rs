//! Reads the time in which work waited for a CPU, for storage or for memory, and how often CPU quotas throttle.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::telemetry::cgroup;

/// The kernel's counts of lost time, in microseconds: `total` in the lines `some` of its pressure files. It is the time in
/// which at least one task waited (kernel documentation, accounting/psi.rst; since Linux 4.20).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    pub(super) cpu: Option<u64>,
    pub(super) io: Option<u64>,
    pub(super) memory: Option<u64>,
}

impl Pressure {
    /// Reads the counts of the whole machine.
    pub(super) fn of_machine(proc: &Path) -> Self {
        let file = |name: &str| some_total(&proc.join("pressure").join(name));
        Self { cpu: file("cpu"), io: file("io"), memory: file("memory") }
    }

    /// Reads the counts of a control group of version 2; `None` while the group is empty, since it then reports
    /// nothing.
    pub(super) fn of_group(folder: &Path) -> Option<Self> {
        let events = fs::read_to_string(folder.join("cgroup.events")).ok()?;
        if !events.lines().any(|line| line == "populated 1") {
            return None;
        }
        let file = |name: &str| some_total(&folder.join(format!("{name}.pressure")));
        let pressure = Self { cpu: file("cpu"), io: file("io"), memory: file("memory") };
        (pressure != Self::default()).then_some(pressure)
    }
}

/// Returns the total in a line like `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`.
fn some_total(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

/// A group with a quota; its size does not matter.
#[derive(Debug)]
pub(super) struct Quota {
    /// `cpu.stat` of the group.
    stat: PathBuf,
}

/// Counts of a quota's periods, each usually 100 ms long, in which the group ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Periods {
    all: u64,
    /// The periods in which the quota was used up and a task had to wait.
    throttled: u64,
}

/// Finds the quotas that this process is under, including quotas of outer groups. They also apply to probes.
pub(super) fn quotas(proc: &Path, cgroup_root: &Path) -> Vec<Quota> {
    let folders = cgroup::folders(proc, cgroup_root, "cpu").into_iter();
    folders.filter(|folder| has_quota(folder)).map(|folder| Quota { stat: folder.join("cpu.stat") }).collect()
}

/// `cpu.max` has `max` instead of a quota in version 2 (kernel documentation, admin-guide/cgroup-v2.rst),
/// `cpu.cfs_quota_us` has -1 in version 1 (scheduler/sched-bwc.rst).
fn has_quota(folder: &Path) -> bool {
    let first = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        text.split_whitespace().next()?.parse::<i64>().ok()
    };
    first("cpu.max").or_else(|| first("cpu.cfs_quota_us")).is_some_and(|quota| quota > 0)
}

impl Quota {
    pub(super) fn periods(&self) -> Option<Periods> {
        let text = fs::read_to_string(&self.stat).ok()?;
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
        };
        Some(Periods { all: field("nr_periods")?, throttled: field("nr_throttled")? })
    }
}

impl Periods {
    /// Returns the share of the periods since then in which a task had to wait. The counts of throttled *time* in the same
    /// file are sums over CPUs, so they are no share.
    pub(super) fn share(&self, now: &Self) -> Option<f64> {
        let (all, throttled) = (now.all.checked_sub(self.all)?, now.throttled.checked_sub(self.throttled)?);
        let share = throttled as f64 / all.max(1) as f64;
        Some(share.min(1.0))
    }
}
