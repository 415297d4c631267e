//! The machine's memory: how much there is, how much is free, how much a process tree holds.

use std::fs;
use std::path::{Path, PathBuf};

/// The memory that this process may use: the machine's, or less where a control group limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMemory {
    /// All of it, in bytes.
    pub total_bytes: u64,
    /// What can be had without swapping, in bytes; page cache counts as free.
    pub available_bytes: u64,
}

impl HostMemory {
    /// Reads it now; `None` where the kernel does not tell.
    pub fn read() -> Option<Self> {
        Self::under(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    fn under(proc: &Path, cgroup_root: &Path) -> Option<Self> {
        let text = fs::read_to_string(proc.join("meminfo")).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
        };
        let mut memory = Self { total_bytes: field("MemTotal:")?, available_bytes: field("MemAvailable:")? };
        for (limit, usage) in cgroup_files(proc, cgroup_root) {
            let (Some(limit), Some(usage)) = (number(&limit), used_by_group(&usage)) else { continue };
            if limit < memory.total_bytes {
                memory.total_bytes = limit;
            }
            memory.available_bytes = memory.available_bytes.min(limit.saturating_sub(usage));
        }
        Some(memory)
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What a group uses, without the page cache that the kernel would give up first.
fn used_by_group(usage: &Path) -> Option<u64> {
    let used = number(usage)?;
    let stat = fs::read_to_string(usage.parent()?.join("memory.stat")).unwrap_or_default();
    let cache = stat
        .lines()
        .find_map(|line| line.strip_prefix("total_inactive_file ").or_else(|| line.strip_prefix("inactive_file ")))
        .and_then(|number| number.trim().parse::<u64>().ok())
        .unwrap_or(0);
    Some(used.saturating_sub(cache))
}

/// Limit and usage files of this process's memory group and of those above it, in version 2 and version 1 of control
/// groups (kernel documentation, admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
fn cgroup_files(proc: &Path, root: &Path) -> Vec<(PathBuf, PathBuf)> {
    let text = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let mut files = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (root, limit, usage) = if controllers.is_empty() {
            (root.to_owned(), "memory.max", "memory.current")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            continue;
        };
        for folder in Path::new(group.trim_start_matches('/')).ancestors() {
            let folder = root.join(folder);
            files.push((folder.join(limit), folder.join(usage)));
        }
    }
    files
}

/// The resident memory of a process and everything below it, in bytes; pages that processes share count once for each.
pub fn resident_bytes(root: u32) -> u64 {
    crate::telemetry::host::process_tree(root).iter().filter_map(|pid| resident_of(*pid)).sum()
}

fn resident_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    // Without pages of files, where the kernel tells them apart: processes share those, and the kernel can drop them.
    Some(
        (field("RssAnon:").zip(field("RssShmem:")).map(|(anon, shmem)| anon + shmem).or_else(|| field("VmRSS:"))?)
            * 1024,
    )
}

fn process_tree(root: u32) -> Vec<u32> {
    crate::process_table::descendants(root).into_iter().chain([root]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_and_this_process_holds_some() {
        let memory = HostMemory::read().unwrap();
        assert!(memory.total_bytes >= memory.available_bytes);
        assert!(resident_bytes(std::process::id()) > 0);
    }

    #[test]
    fn a_control_group_limits_what_there_is() {
        let root = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (root.path().join("proc"), root.path().join("cgroup"));
        fs::create_dir_all(proc.join("self")).unwrap();
        fs::create_dir_all(cgroup.join("job")).unwrap();
        fs::write(proc.join("meminfo"), "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 800 kB\n").unwrap();
        fs::write(proc.join("self/cgroup"), "0::/job\n").unwrap();
        fs::write(cgroup.join("job/memory.max"), "409600\n").unwrap();
        fs::write(cgroup.join("job/memory.current"), "204800\n").unwrap();
        fs::write(cgroup.join("job/memory.stat"), "anon 1\ninactive_file 102400\n").unwrap();
        let memory = HostMemory::under(&proc, &cgroup).unwrap();
        assert_eq!((memory.total_bytes, memory.available_bytes), (409_600, 307_200));
        fs::write(cgroup.join("job/memory.max"), "max\n").unwrap();
        let memory = HostMemory::under(&proc, &cgroup).unwrap();
        assert_eq!((memory.total_bytes, memory.available_bytes), (1_024_000, 819_200));
    }
}
