//! CPUs, memory and disk.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::machine::process_table::{allowed_processors, numbers};
use crate::machine::telemetry::{HostMemory, SharedMemory, cgroup, memory::kib};

/// The machine's resources besides GPUs, and the part of them that this process may use.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Host {
    /// The CPUs.
    pub processors: Processors,
    /// Memory, in bytes; the control group's limit if that is lower.
    pub memory_bytes: Option<u64>,
    /// Memory that is available without swapping, in bytes.
    pub memory_available_bytes: Option<u64>,
    /// The machine's memory in bytes, if a control group allows less.
    pub machine_memory_bytes: Option<u64>,
    /// The size of `/dev/shm` in bytes.
    pub shared_memory_bytes: Option<u64>,
    /// The free part of `/dev/shm`, in bytes.
    pub shared_memory_free_bytes: Option<u64>,
    /// True if the machine is virtual (the flag `hypervisor` in `/proc/cpuinfo`, cpuid(4)).
    pub is_virtual: bool,
    /// The disk for results.
    pub disk: Option<Disk>,
}

/// CPU cores.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Processors {
    /// The model.
    pub model: Option<String>,
    /// All online cores, as the kernel counts them.
    pub online: usize,
    /// The cores that this process may run on (sched_setaffinity(2)).
    pub usable: usize,
    /// The number of cores that the control group's quota allows to be busy; `None` without a quota.
    pub quota: Option<f64>,
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// The requested folder; its nearest existing ancestor was examined.
    pub folder: PathBuf,
    /// The total size, in bytes.
    pub total_bytes: u64,
    /// The bytes that this user may still write.
    pub free_bytes: u64,
}

impl Host {
    pub(super) fn look(out: &Path) -> Self {
        let (memory, shared) = (HostMemory::read(), SharedMemory::read());
        let machine = kib(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:");
        let limited = memory.and_then(|memory| machine.filter(|&all| all > memory.total_bytes));
        Self {
            processors: Processors::look(),
            memory_bytes: memory.map(|memory| memory.total_bytes),
            memory_available_bytes: memory.map(|memory| memory.available_bytes),
            machine_memory_bytes: limited,
            shared_memory_bytes: shared.map(|shared| shared.total_bytes),
            shared_memory_free_bytes: shared.map(|shared| shared.free_bytes),
            is_virtual: is_virtual(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            disk: Disk::of(out),
        }
    }
}

impl Processors {
    /// Reads the machine's cores.
    pub fn look() -> Self {
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let allowed = allowed_processors("self").map_or(0, |list| list.len());
        let online = numbers(&file("/sys/devices/system/cpu/online")).len();
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        let usable = if allowed == 0 { here } else { allowed };
        Self {
            model: model(&file("/proc/cpuinfo")),
            online: online.max(1),
            usable: if online == 0 { usable } else { usable.min(online) },
            quota: quota(Path::new("/proc"), Path::new("/sys/fs/cgroup")),
        }
    }

    /// Returns true if a quota allows less than the usable cores.
    pub fn has_quota(&self) -> bool {
        self.quota.is_some_and(|quota| quota < self.usable as f64)
    }

    /// Returns the number of cores that can really be kept busy.
    pub fn effective(&self) -> f64 {
        self.quota.unwrap_or(f64::INFINITY).min(self.usable as f64)
    }
}

fn is_virtual(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the smallest quota of the control groups around this process, in cores.
fn quota(proc: &Path, root: &Path) -> Option<f64> {
    let folders = cgroup::folders(proc, root, "cpu");
    folders.iter().filter_map(|folder| cgroup::cpu_quota(folder)).min_by(f64::total_cmp)
}

impl Disk {
    fn of(folder: &Path) -> Option<Self> {
        let absolute = std::path::absolute(folder).ok()?;
        let there = absolute.ancestors().find(|folder| folder.is_dir())?;
        let stat = rustix::fs::statvfs(there).ok()?;
        let [total_bytes, free_bytes] = [stat.f_blocks, stat.f_bavail].map(|blocks| blocks * stat.f_frsize);
        Some(Self { folder: folder.to_owned(), total_bytes, free_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::write;

    #[test]
    fn the_tightest_quota_counts() {
        let (proc, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(proc.path(), "self/cgroup", "0::/a/b\n");
        write(root.path(), "cpu.max", "max 100000\n");
        assert_eq!(quota(proc.path(), root.path()), None);
        write(root.path(), "a/cpu.max", "250000 100000\n");
        write(root.path(), "a/b/cpu.max", "400000 100000\n");
        assert_eq!(quota(proc.path(), root.path()), Some(2.5));
    }

    #[test]
    fn the_first_version_of_control_groups_has_quotas_too() {
        let (proc, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(proc.path(), "self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n");
        write(root.path(), "cpu/job/cpu.cfs_quota_us", "-1\n");
        write(root.path(), "cpu/job/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(proc.path(), root.path()), None);
        write(root.path(), "cpu/job/cpu.cfs_quota_us", "150000\n");
        assert_eq!(quota(proc.path(), root.path()), Some(1.5));
    }

    #[test]
    fn the_disk_is_that_of_the_nearest_folder_above() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::of(&folder.path().join("not/there")).unwrap();
        assert!(disk.free_bytes <= disk.total_bytes && disk.total_bytes > 0);
    }
}
