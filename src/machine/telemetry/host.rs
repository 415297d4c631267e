//! The machine's memory: total and available.

use std::fs;
use std::path::Path;

use super::cgroup;

/// The memory that this process may use: the machine's, or less if a control group limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMemory {
    /// Total memory, in bytes.
    pub total_bytes: u64,
    /// Memory available without swapping, in bytes; page cache counts as free.
    pub available_bytes: u64,
}

impl HostMemory {
    /// Reads it now; `None` if the kernel does not report it.
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
        for folder in cgroup::folders(proc, cgroup_root, "memory") {
            let file =
                |new: &str, old: &str| Some(folder.join(new)).filter(|file| file.exists()).unwrap_or(folder.join(old));
            let limit = number(&file("memory.max", "memory.limit_in_bytes"));
            let usage = used_by_group(&file("memory.current", "memory.usage_in_bytes"));
            let (Some(limit), Some(usage)) = (limit, usage) else { continue };
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

/// Returns the memory of a group, without the page cache that the kernel would drop first.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        let memory = HostMemory::read().unwrap();
        assert!(memory.total_bytes >= memory.available_bytes);
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
