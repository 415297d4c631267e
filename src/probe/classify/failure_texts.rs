//! The texts by which frameworks and runtimes report failures, and the numbers in PyTorch's message.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use crate::model::Memory;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    OutOfMemory(Memory),
    /// cuDNN found no algorithm for an operation. The reason is a lack of memory if an allocation failed.
    NoEngine,
    /// The GPU or a library on it is in a state from which the process cannot recover. The line gives the reason.
    DeviceFault,
    /// A data worker is gone. The reason depends on the signal and on the kernel's reports.
    WorkerLost,
}

/// The headings of the lists in `docs/design/failure-texts.md`, and the meaning of their texts.
const LISTS: [(&str, Meaning); 6] = [
    ("Device memory", Meaning::OutOfMemory(Memory::Device)),
    ("Device memory if an allocation failed", Meaning::NoEngine),
    ("Host memory", Meaning::OutOfMemory(Memory::Host)),
    ("Shared memory", Meaning::OutOfMemory(Memory::Shared)),
    ("Faults of the device", Meaning::DeviceFault),
    ("Data workers", Meaning::WorkerLost),
];

/// All texts in lower case, each with its meaning. The flag is true if the text counts only at the start of a line.
static TEXTS: LazyLock<Vec<(String, bool, Meaning)>> = LazyLock::new(|| {
    let mut texts = Vec::new();
    let mut means = None;
    for line in include_str!("../../../docs/design/failure-texts.md").lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            means = LISTS.iter().find(|(list, _)| *list == heading).map(|(_, means)| *means);
        }
        let item = line.strip_prefix("- `").and_then(|line| line.rsplit_once('`'));
        if let Some(((text, note), means)) = item.zip(means) {
            texts.push((text.to_lowercase(), note.starts_with(", at the start"), means));
        }
    }
    texts
});

pub(super) fn meaning(line: &str) -> Option<Meaning> {
    let lower = line.to_lowercase();
    let is_in = |text: &String, at_start| if at_start { lower.starts_with(text) } else { lower.contains(text) };
    TEXTS.iter().find(|(text, at_start, _)| is_in(text, *at_start)).map(|(_, _, means)| *means)
}

/// Returns a short version of PyTorch's message about a lack of device memory; `None` if it is a different message. The
/// probe's own processes do not count as other processes.
///
/// Today it is `CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.06
/// GiB is free. Process 4711 has 20.00 GiB memory in use. Including non-PyTorch memory, this process has 58.00 GiB
/// memory in use. ...`; before 2.2 it was `... Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.00 GiB
/// already allocated; 12.00 MiB free; 7.00 GiB reserved in total by PyTorch)` (c10/cuda/CUDACachingAllocator.cpp).
pub(super) fn shortage(line: &str, own: &BTreeSet<u32>) -> Option<String> {
    // The message up to the amount that could not be allocated.
    let head = TRIED.as_ref()?.find(line)?.as_str().trim();
    let group = |pattern: &LazyLock<Option<Regex>>| {
        let found = pattern.as_ref()?.captures(line)?;
        Some(found.iter().skip(1).flatten().next()?.as_str().to_owned())
    };
    let mut parts = Vec::new();
    if let (Some(free), Some(total)) = (group(&FREE), group(&TOTAL)) {
        parts.push(format!("{free} of {total} are free"));
    }
    for found in OTHERS.as_ref()?.captures_iter(line) {
        let Ok(pid) = found[1].parse::<u32>() else { continue };
        if !own.contains(&pid) {
            parts.push(format!("process {pid}, which is none of the probe's, holds {}", &found[2]));
        }
    }
    Some(if parts.is_empty() { head.to_owned() } else { format!("{head} ({})", parts.join("; ")) })
}

static TRIED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^.*?Tried to allocate [0-9.]+ (?:bytes|\S?i?B)").ok());
static TOTAL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"total capacity of ([0-9.]+ \S?i?B)|([0-9.]+ \S?i?B) total capacity").ok());
static FREE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"of which ([0-9.]+ (?:bytes|\S?i?B)) is free|([0-9.]+ (?:bytes|\S?i?B)) free").ok());
static OTHERS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"Process (\d+) has ([0-9.]+ (?:bytes|\S?i?B)) memory in use").ok());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_texts_are_read_and_none_hides_another() {
        assert_eq!((TEXTS.len(), TEXTS.iter().filter(|(_, at_start, _)| *at_start).count()), (70, 2));
        for (place, (text, _, means)) in TEXTS.iter().enumerate() {
            let hides = |before: &&(String, bool, Meaning)| !before.1 && text.contains(&before.0) && before.2 != *means;
            let hidden = TEXTS[..place].iter().find(hides);
            assert!(hidden.is_none(), "{hidden:?} hides `{text}`");
        }
    }

    #[test]
    fn the_numbers_of_today_and_of_before_are_read() {
        let new = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
                   79.10 GiB of which 1.06 GiB is free. Process 4711 has 20.00 GiB memory in use. Process 12 has 1.00 GiB \
                   memory in use. Including non-PyTorch memory, this process has 58.00 GiB memory in use.";
        assert_eq!(
            shortage(new, &BTreeSet::from([12])).unwrap(),
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (1.06 GiB of 79.10 GiB are free; \
             process 4711, which is none of the probe's, holds 20.00 GiB)"
        );
        let old = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.00 GiB \
                   already allocated; 12.00 MiB free; 7.00 GiB reserved in total by PyTorch)";
        assert_eq!(
            shortage(old, &BTreeSet::new()).unwrap(),
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (12.00 MiB of 7.93 GiB are free)"
        );
        assert_eq!(shortage("CUDA error: out of memory", &BTreeSet::new()), None);
    }
}
