//! Measures the memory that the processes of a probe hold together.

use std::fs;

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

/// Returns a process's share of the anonymous pages that it shares with other processes, such as its forks. Their own shares
/// lack this part.
pub fn shared_memory_of(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let bytes = |name: &str| kib(&text, name).unwrap_or(0);
    // Private anonymous pages have been written to. Pages of files that were written to are also anonymous.
    bytes("Pss_Anon:").saturating_sub(bytes("Private_Dirty:"))
}

fn proportional(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let field = |name: &str| kib(&text, name);
    let parts = field("Pss_Anon:").zip(field("Pss_Shmem:")).map(|(anon, shmem)| anon + shmem);
    parts.or_else(|| field("Pss:"))
}

fn resident(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| kib(&text, name);
    let parts = field("RssAnon:").zip(field("RssShmem:")).map(|(anon, shmem)| anon + shmem);
    parts.or_else(|| field("VmRSS:"))
}

/// The bytes in a line like `Pss_Anon:     1234 kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
