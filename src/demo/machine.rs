//! Reads the memory that the machine, or the container of this process, has left.

use std::fs;

/// Returns the available bytes; `None` if the system does not report them.
pub(super) fn available_memory_bytes() -> Option<u64> {
    let machine = machine_bytes(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .zip(fs::read_to_string("/sys/fs/cgroup/memory.stat").ok())
        .and_then(|(limit, statistics)| container_bytes(&limit, &statistics));
    Some(container.map_or(machine, |bytes| bytes.min(machine)))
}

fn machine_bytes(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemAvailable:")?.checked_mul(1024)
}

// The page cache counts as used in a container's total, but the kernel frees it on demand. So only anonymous memory is subtracted
// from the limit.
fn container_bytes(limit: &str, statistics: &str) -> Option<u64> {
    let limit: u64 = limit.trim().parse().ok()?;
    Some(limit.saturating_sub(field(statistics, "anon")?))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_bytes() {
        let meminfo = "MemTotal:  9 kB\nMemAvailable:   4 kB\n";
        assert_eq!(machine_bytes(meminfo), Some(4096));
        assert_eq!(container_bytes("1000\n", "file 7\nanon 300\nanon_thp 5\n"), Some(700));
        assert_eq!(container_bytes("max\n", "anon 300\n"), None);
        assert_eq!(machine_bytes("MemAvailable: lots"), None);
    }
}
