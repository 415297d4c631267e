//! Reads the numbers in PyTorch's message about a lack of device memory.
//!
//! Today it is `CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.06
//! GiB is free. Process 4711 has 20.00 GiB memory in use. Including non-PyTorch memory, this process has 58.00 GiB
//! memory in use. ...`; before 2.2 it was `... Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.00 GiB
//! already allocated; 12.00 MiB free; 7.00 GiB reserved in total by PyTorch)` (c10/cuda/CUDACachingAllocator.cpp).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// The content of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shortage {
    /// The message up to the amount that could not be allocated.
    head: String,
    free: Option<String>,
    total: Option<String>,
    /// Other processes on the device, and their memory.
    pub(super) others: Vec<(u32, String)>,
}

static TRIED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^.*?Tried to allocate [0-9.]+ (?:bytes|\S?i?B)").ok());
static TOTAL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"total capacity of ([0-9.]+ \S?i?B)|([0-9.]+ \S?i?B) total capacity").ok());
static FREE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"of which ([0-9.]+ (?:bytes|\S?i?B)) is free|([0-9.]+ (?:bytes|\S?i?B)) free").ok());
static OTHERS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"Process (\d+) has ([0-9.]+ (?:bytes|\S?i?B)) memory in use").ok());

impl Shortage {
    /// Reads a line; `None` if it is a different message.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let head = TRIED.as_ref()?.find(line)?.as_str().trim().to_owned();
        let group = |pattern: &LazyLock<Option<Regex>>| {
            let found = pattern.as_ref()?.captures(line)?;
            Some(found.iter().skip(1).flatten().next()?.as_str().to_owned())
        };
        let others = OTHERS.as_ref()?.captures_iter(line);
        let others = others.filter_map(|found| Some((found[1].parse().ok()?, found[2].to_owned()))).collect();
        Some(Self { head, free: group(&FREE), total: group(&TOTAL), others })
    }

    /// Returns a short version of the message. The probe's own processes do not count as other processes.
    pub(super) fn words(&self, own: &BTreeSet<u32>) -> String {
        let mut parts = Vec::new();
        if let (Some(free), Some(total)) = (&self.free, &self.total) {
            parts.push(format!("{free} of {total} are free"));
        }
        for (pid, held) in self.others.iter().filter(|(pid, _)| !own.contains(pid)) {
            parts.push(format!("process {pid}, which is none of the probe's, holds {held}"));
        }
        if parts.is_empty() { self.head.clone() } else { format!("{} ({})", self.head, parts.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_today_and_of_before_are_read() {
        let new = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
                   79.10 GiB of which 1.06 GiB is free. Process 4711 has 20.00 GiB memory in use. Process 12 has 1.00 GiB \
                   memory in use. Including non-PyTorch memory, this process has 58.00 GiB memory in use.";
        assert_eq!(
            Shortage::parse(new).unwrap().words(&BTreeSet::from([12])),
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (1.06 GiB of 79.10 GiB are free; \
             process 4711, which is none of the probe's, holds 20.00 GiB)"
        );
        let old = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.00 GiB \
                   already allocated; 12.00 MiB free; 7.00 GiB reserved in total by PyTorch)";
        assert_eq!(
            Shortage::parse(old).unwrap().words(&BTreeSet::new()),
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (12.00 MiB of 7.93 GiB are free)"
        );
        assert_eq!(Shortage::parse("CUDA error: out of memory"), None);
    }
}
