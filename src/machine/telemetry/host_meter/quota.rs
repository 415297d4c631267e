//! Reads the CPU quotas of control groups, and how often they throttle.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::telemetry::cgroup;

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
pub(super) fn find(proc: &Path, cgroup_root: &Path) -> Vec<Quota> {
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
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = throttled as f64 / all.max(1) as f64;
        Some(share.min(1.0))
    }
}
