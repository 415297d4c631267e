//! The machine's memory while a probe runs: its peak, and whether the machine is about to run out.

use std::fs;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::objective::Headroom;
use crate::quantity::show_bytes;
use crate::telemetry::{HostMemory, resident_bytes};

/// Host memory that runs short.
pub(super) struct Shortage {
    /// Whether the probe's own processes hold a good part of what is used.
    pub(super) by_probe: bool,
    pub(super) reason: String,
}

/// Looks at memory now and then.
pub(super) struct HostWatch {
    root: u32,
    headroom: Headroom,
    next: Option<Instant>,
    looks: u32,
    peak_bytes: Option<u64>,
    total_bytes: Option<u64>,
    oom_kills: Option<u64>,
}

impl HostWatch {
    pub(super) fn new(root: u32, headroom: Headroom) -> Self {
        let oom_kills = oom_kills();
        Self { root, headroom, next: None, looks: 0, peak_bytes: None, total_bytes: None, oom_kills }
    }

    /// Looks at memory if it is time to.
    pub(super) fn look(&mut self, now: Instant) -> ControlFlow<Shortage> {
        if self.next.is_some_and(|next| now < next) {
            return ControlFlow::Continue(());
        }
        // Walking the process table costs milliseconds on a busy machine: often at first, then once a second.
        self.looks += 1;
        self.next = Some(now + Duration::from_millis(if self.looks < 10 { 200 } else { 1000 }));
        let held = resident_bytes(self.root);
        self.peak_bytes = self.peak_bytes.max(Some(held).filter(|&bytes| bytes > 0));
        let Some(memory) = HostMemory::read() else { return ControlFlow::Continue(()) };
        self.total_bytes = Some(memory.total_bytes);
        if memory.available_bytes >= self.headroom.of(memory.total_bytes) {
            return ControlFlow::Continue(());
        }
        let used = memory.total_bytes.saturating_sub(memory.available_bytes);
        ControlFlow::Break(Shortage {
            by_probe: held > used / 4,
            reason: format!(
                "only {} of host memory is left ({} must be); the probe holds {}",
                show_bytes(memory.available_bytes),
                self.headroom,
                show_bytes(held)
            ),
        })
    }

    pub(super) fn peak_bytes(&self) -> Option<u64> {
        self.peak_bytes
    }

    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// Whether the kernel killed any process for lack of memory since the watch began.
    pub(super) fn oom_killed(&self) -> bool {
        oom_kills().zip(self.oom_kills).is_some_and(|(now, then)| now > then)
    }
}

/// How many processes the kernel has killed for lack of memory, in control groups too (`oom_kill` in `/proc/vmstat`,
/// since Linux 4.13).
fn oom_kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}
