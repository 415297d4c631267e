//! Counts the processes that the kernel has killed for lack of memory.

use std::fs;
use std::path::Path;

use super::cgroup;

/// The kernel's counts at some moment; a count is absent if the kernel does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomKills {
    /// On the whole machine, including control groups (`oom_kill` in `/proc/vmstat`, since Linux 4.13).
    machine: Option<u64>,
    /// In this process's control group, and below it in version 2 (`oom_kill` in `memory.events`, since Linux 4.13; in
    /// version 1 `memory.oom_control`). A container may see only this count.
    group: Option<u64>,
}

impl OomKills {
    /// Reads them now.
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
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_in_the_machine_or_in_the_own_group_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let (proc, cgroup) = (root.path().join("proc"), root.path().join("cgroup"));
        fs::create_dir_all(proc.join("self")).unwrap();
        fs::create_dir_all(cgroup.join("job")).unwrap();
        fs::write(proc.join("self/cgroup"), "0::/job\n").unwrap();
        let nothing = OomKills::under(&proc, &cgroup);
        assert!(!nothing.rose_since(&nothing));
        fs::write(cgroup.join("job/memory.events"), "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n")
            .unwrap();
        fs::write(proc.join("vmstat"), "pgfault 1\noom_kill 7\n").unwrap();
        let before = OomKills::under(&proc, &cgroup);
        assert_eq!(before, OomKills { machine: Some(7), group: Some(1) });
        assert!(!before.rose_since(&nothing), "a counter that was not there tells nothing");
        fs::write(cgroup.join("job/memory.events"), "oom_kill 2\n").unwrap();
        assert!(OomKills::under(&proc, &cgroup).rose_since(&before));
        fs::remove_file(cgroup.join("job/memory.events")).unwrap();
        fs::write(proc.join("vmstat"), "oom_kill 8\n").unwrap();
        assert!(OomKills::under(&proc, &cgroup).rose_since(&before));
    }
}
