//! Reads the memory of the machine, of control groups and of processes, and the kernel's counts of out-of-memory kills.

use std::fs;
use std::path::Path;

use super::cgroup::{self, number_after};

/// The memory that this process may use: the machine's, or less if a control group limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMemory {
    /// Total memory, in bytes.
    pub total_bytes: u64,
    /// Memory available without swapping, in bytes; page cache counts as free.
    pub available_bytes: u64,
}

impl HostMemory {
    /// Reads the memory now; `None` if the kernel does not report it.
    pub fn read() -> Option<Self> {
        Self::under(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    fn under(proc: &Path, cgroup_root: &Path) -> Option<Self> {
        let text = fs::read_to_string(proc.join("meminfo")).ok()?;
        let mut memory = Self { total_bytes: kib(&text, "MemTotal:")?, available_bytes: kib(&text, "MemAvailable:")? };
        for folder in cgroup::folders(proc, cgroup_root, "memory") {
            let file =
                |new: &str, old: &str| Some(folder.join(new)).filter(|file| file.exists()).unwrap_or(folder.join(old));
            let limit = number(&file("memory.max", "memory.limit_in_bytes"));
            let usage = used_by_group(&file("memory.current", "memory.usage_in_bytes"));
            let (Some(limit), Some(usage)) = (limit, usage) else { continue };
            memory.total_bytes = memory.total_bytes.min(limit);
            memory.available_bytes = memory.available_bytes.min(limit.saturating_sub(usage));
        }
        Some(memory)
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the memory of a group, without the page cache that the kernel would drop first.
fn used_by_group(usage: &Path) -> Option<u64> {
    let used = number(usage)?;
    let stat = fs::read_to_string(usage.parent()?.join("memory.stat")).unwrap_or_default();
    let cache = number_after(&stat, "inactive_file ").or_else(|| number_after(&stat, "total_inactive_file "));
    Some(used.saturating_sub(cache.unwrap_or(0)))
}

/// Returns the memory of some processes, in bytes: their private memory, and their share of shared memory.
///
/// This is the *proportional* set size of anonymous and shared-memory pages: a page that four processes map counts a
/// quarter for each (`/proc/PID/smaps_rollup`, proc(5); since Linux 4.14). Pages of files are left out, since the
/// kernel can drop them. If it cannot be read, the resident size is used, in which such a page counts four times.
pub fn memory_of(pids: &[u32]) -> u64 {
    pids.iter().filter_map(|&pid| proportional(pid).or_else(|| resident(pid))).sum()
}

/// Returns the anonymous memory of some processes, in bytes, with shared pages counted for each. The kernel keeps this
/// count, so no pages have to be walked (`RssAnon` in `/proc/PID/status`, proc(5); since Linux 4.5).
pub fn anonymous_memory_of(pids: &[u32]) -> u64 {
    let anonymous = |pid: &u32| kib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "RssAnon:");
    pids.iter().filter_map(anonymous).sum()
}

/// Returns a process's share of the anonymous pages that its forks use as well. [`memory_of`] the forks does not include it.
pub fn shared_memory_of(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let bytes = |name: &str| kib(&text, name).unwrap_or(0);
    // All private anonymous pages were written to, and so count as `Private_Dirty`, like the written pages of files.
    bytes("Pss_Anon:").saturating_sub(bytes("Private_Dirty:"))
}

fn proportional(pid: u32) -> Option<u64> {
    held(pid, "smaps_rollup", ["Pss_Anon:", "Pss_Shmem:", "Pss:"])
}

fn resident(pid: u32) -> Option<u64> {
    held(pid, "status", ["RssAnon:", "RssShmem:", "VmRSS:"])
}

/// Returns the sum of the first two fields in a file of a process, or the third field if one of the two is missing.
fn held(pid: u32, file: &str, fields: [&str; 3]) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let [anonymous, shared, all] = fields.map(|name| kib(&text, name));
    anonymous.zip(shared).map(|(anonymous, shared)| anonymous + shared).or(all)
}

/// Returns the bytes in a line like `Pss_Anon:     1234 kB`.
pub(in crate::machine) fn kib(text: &str, name: &str) -> Option<u64> {
    Some(number_after(text, name)? * 1024)
}

/// The kernel's counts of out-of-memory kills at some moment; a count is absent if the kernel does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomKills {
    /// On the whole machine, including control groups (`oom_kill` in `/proc/vmstat`, since Linux 4.13).
    machine: Option<u64>,
    /// In this process's control group (`oom_kill` in `memory.events`, since Linux 4.13; in version 1
    /// `memory.oom_control`). Version 2 includes the groups below it. A container may see only this count.
    group: Option<u64>,
}

impl OomKills {
    /// Reads the counts now.
    pub fn read() -> Self {
        Self::under(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    fn under(proc: &Path, cgroup_root: &Path) -> Self {
        let group = cgroup::folders(proc, cgroup_root, "memory").into_iter().find_map(|folder| {
            counter(&folder.join("memory.events")).or_else(|| counter(&folder.join("memory.oom_control")))
        });
        Self { machine: counter(&proc.join("vmstat")), group }
    }

    /// Returns true if any process was killed between an earlier reading and this reading.
    pub fn rose_since(&self, earlier: &Self) -> bool {
        let rose = |now: Option<u64>, then: Option<u64>| now.zip(then).is_some_and(|(now, then)| now > then);
        rose(self.machine, earlier.machine) || rose(self.group, earlier.group)
    }
}

fn counter(file: &Path) -> Option<u64> {
    number_after(&fs::read_to_string(file).ok()?, "oom_kill ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::write;

    #[test]
    fn a_control_group_limits_what_there_is() {
        let root = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (root.path().join("proc"), root.path().join("cgroup"));
        write(&proc, "self/cgroup", "0::/job\n");
        write(&proc, "meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 800 kB\n");
        write(&cgroup, "job/memory.current", "204800\n");
        write(&cgroup, "job/memory.stat", "anon 1\ninactive_file 102400\n");
        for (limit, total_bytes, available_bytes) in [("409600\n", 409_600, 307_200), ("max\n", 1_024_000, 819_200)] {
            write(&cgroup, "job/memory.max", limit);
            let memory = HostMemory::under(&proc, &cgroup).unwrap();
            assert_eq!(memory, HostMemory { total_bytes, available_bytes });
        }
    }

    #[test]
    fn this_process_holds_some_and_no_more_than_is_resident() {
        let own = std::process::id();
        let block = std::hint::black_box(vec![1_u8; 8 << 20]);
        let held = memory_of(&[own]);
        assert!(held >= block.len() as u64, "{held}");
        assert!(anonymous_memory_of(&[own]) >= block.len() as u64);
        // The resident size is read later, while other tests run.
        assert!(held <= resident(own).unwrap() + (64 << 20));
        assert_eq!(memory_of(&[u32::MAX]), 0);
    }

    #[test]
    fn a_kill_in_the_machine_or_in_the_own_group_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (root.path().join("proc"), root.path().join("cgroup"));
        write(&proc, "self/cgroup", "0::/job\n");
        let nothing = OomKills::under(&proc, &cgroup);
        assert!(!nothing.rose_since(&nothing));
        write(&cgroup, "job/memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n");
        write(&proc, "vmstat", "pgfault 1\noom_kill 7\n");
        let before = OomKills::under(&proc, &cgroup);
        assert_eq!(before, OomKills { machine: Some(7), group: Some(1) });
        assert!(!before.rose_since(&nothing), "a counter that was not there tells nothing");
        write(&cgroup, "job/memory.events", "oom_kill 2\n");
        assert!(OomKills::under(&proc, &cgroup).rose_since(&before));
        fs::remove_file(cgroup.join("job/memory.events")).unwrap();
        write(&proc, "vmstat", "oom_kill 8\n");
        assert!(OomKills::under(&proc, &cgroup).rose_since(&before));
    }
}
