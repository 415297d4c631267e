//! The machine while a probe runs: the memory of its processes and its peak, whether the machine is about to run out,
//! who uses the processors.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::shared_watch::SharedWatch;
use crate::objective::Headroom;
use crate::process_table::descendants;
use crate::quantity::show_bytes;
use crate::telemetry::{HostMemory, OomKills, ProcessorTimes, memory_of};

/// Host memory that runs short.
pub(super) struct Shortage {
    /// Whether the probe's own processes hold a good part of what is used.
    pub(super) by_probe: bool,
    pub(super) reason: String,
}

/// Looks at the machine now and then.
pub(super) struct HostWatch {
    root: u32,
    headroom: Headroom,
    next: Option<Instant>,
    looks: u32,
    peak_bytes: Option<u64>,
    total_bytes: Option<u64>,
    kills: OomKills,
    shared: SharedWatch,
    /// The processes below the root at the last look.
    living: Vec<u32>,
    /// Every process that was ever seen below the root.
    own: BTreeSet<u32>,
    first_times: Option<ProcessorTimes>,
    last_times: Option<ProcessorTimes>,
}

impl HostWatch {
    /// A watch on everything below a process.
    pub(super) fn new(root: u32, headroom: Headroom) -> Self {
        Self {
            root,
            headroom,
            next: None,
            looks: 0,
            peak_bytes: None,
            total_bytes: None,
            kills: OomKills::read(),
            shared: SharedWatch::new(),
            living: Vec::new(),
            own: BTreeSet::new(),
            first_times: ProcessorTimes::read(&[root]),
            last_times: None,
        }
    }

    /// Looks at memory if it is time to.
    pub(super) fn look(&mut self, now: Instant) -> ControlFlow<Shortage> {
        self.shared.glance();
        if self.next.is_some_and(|next| now < next) {
            return ControlFlow::Continue(());
        }
        let held = self.look_at_processes();
        self.looks += 1;
        // Often at first, then once a second. The kernel walks all page tables of a process to add its memory up, and
        // holds a lock of that process meanwhile, so large ones are looked at less often: 1 % of the time at most.
        const SHARE_OF_TIME: u32 = 100;
        let usual = Duration::from_millis(if self.looks < 10 { 200 } else { 1000 });
        self.next = Some(now + usual.max(now.elapsed() * SHARE_OF_TIME));
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

    /// Looks at everything once more, while the processes are still there.
    pub(super) fn last_look(&mut self) {
        self.shared.glance();
        self.look_at_processes();
    }

    /// The memory of the probe's processes, in bytes.
    fn look_at_processes(&mut self) -> u64 {
        let mut pids = descendants(self.root);
        self.own.extend(&pids);
        self.living.clone_from(&pids);
        pids.push(self.root);
        self.last_times = ProcessorTimes::read(&pids).or(self.last_times);
        self.shared.look(&pids);
        let held = memory_of(&pids);
        self.peak_bytes = self.peak_bytes.max(Some(held).filter(|&bytes| bytes > 0));
        held
    }

    /// Removes what the probe's processes left in shared memory, now that they are gone.
    pub(super) fn clean(&self) {
        self.shared.clean(&self.own);
    }

    /// The probe's processes at the last look.
    pub(super) fn living(&self) -> &[u32] {
        &self.living
    }

    /// The probe's processes, past and present.
    pub(super) fn own(&self) -> &BTreeSet<u32> {
        &self.own
    }

    pub(super) fn peak_bytes(&self) -> Option<u64> {
        self.peak_bytes
    }

    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// The largest use of `/dev/shm` by the probe's processes.
    pub(super) fn shared_peak_bytes(&self) -> u64 {
        self.shared.peak_bytes()
    }

    /// That `/dev/shm` was full, in words, if it was.
    pub(super) fn shared_is_full(&self) -> Option<String> {
        self.shared.full()
    }

    /// The share of the processors' time that others used while the probe ran, where the processors were full: what
    /// others used then was not there for the probe. With a tenth idle there was room for both.
    pub(super) fn foreign_cpu_share(&self) -> Option<f64> {
        const IDLE: f64 = 0.1;
        const FOREIGN: f64 = 0.1;
        let shares = self.last_times?.since(&self.first_times?)?;
        let foreign = shares.foreign + shares.stolen;
        (shares.idle < IDLE && foreign >= FOREIGN).then_some(foreign)
    }

    /// Whether the kernel killed any process for lack of memory since the watch began.
    pub(super) fn oom_killed(&self) -> bool {
        OomKills::read().rose_since(&self.kills)
    }
}
