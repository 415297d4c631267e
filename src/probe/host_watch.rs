//! The machine while a probe runs: the memory of its processes and its peak, whether the machine is about to run out,
//! who uses the processors.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::shared_watch::SharedWatch;
use crate::objective::Headroom;
use crate::process_table::descendants;
use crate::quantity::show_bytes;
use crate::telemetry::shared::files_of;
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
    total_bytes: Option<u64>,
    kills: OomKills,
    first_times: Option<ProcessorTimes>,
    seen: Arc<Mutex<Seen>>,
    /// Dropping it ends the thread that looks at the processes.
    _end: Sender<()>,
}

/// What was seen of the probe's processes.
struct Seen {
    held_bytes: u64,
    peak_bytes: Option<u64>,
    shared: SharedWatch,
    /// The processes below the root at the last look.
    living: Vec<u32>,
    /// Every process that was ever seen below the root.
    own: BTreeSet<u32>,
    last_times: Option<ProcessorTimes>,
    /// How long the last look took.
    cost: Duration,
}

impl HostWatch {
    /// A watch on everything below a process.
    pub(super) fn new(root: u32, headroom: Headroom) -> Self {
        let seen = Arc::new(Mutex::new(Seen {
            held_bytes: 0,
            peak_bytes: None,
            shared: SharedWatch::new(),
            living: Vec::new(),
            own: BTreeSet::new(),
            last_times: None,
            cost: Duration::ZERO,
        }));
        let (end, ended) = channel();
        let theirs = Arc::clone(&seen);
        // Without the thread a few numbers are missing; the probe goes on.
        let _ = std::thread::Builder::new().name("host watch".to_owned()).spawn(move || watch(root, &theirs, &ended));
        Self {
            root,
            headroom,
            next: None,
            total_bytes: None,
            kills: OomKills::read(),
            first_times: ProcessorTimes::read(&[root]),
            seen,
            _end: end,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the machine's memory if it is time to.
    pub(super) fn look(&mut self, now: Instant) -> ControlFlow<Shortage> {
        self.seen().shared.glance();
        if self.next.is_some_and(|next| now < next) {
            return ControlFlow::Continue(());
        }
        self.next = Some(now + Duration::from_millis(200));
        let Some(memory) = HostMemory::read() else { return ControlFlow::Continue(()) };
        self.total_bytes = Some(memory.total_bytes);
        if memory.available_bytes >= self.headroom.of(memory.total_bytes) {
            return ControlFlow::Continue(());
        }
        self.last_look();
        let held = self.seen().held_bytes;
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

    /// Looks at everything once more, while the processes are still there, unless that takes long.
    pub(super) fn last_look(&self) {
        const LONG: Duration = Duration::from_millis(200);
        if self.seen().cost < LONG {
            look_at_processes(self.root, &self.seen);
        }
        let mut seen = self.seen();
        seen.shared.glance();
        seen.living = descendants(self.root);
    }

    /// Removes what the probe's processes left in shared memory, now that they are gone.
    pub(super) fn clean(&self) {
        let seen = self.seen();
        seen.shared.clean(&seen.own);
    }

    /// The probe's processes at the last look.
    pub(super) fn living(&self) -> Vec<u32> {
        self.seen().living.clone()
    }

    /// The probe's processes, past and present.
    pub(super) fn own(&self) -> BTreeSet<u32> {
        self.seen().own.clone()
    }

    pub(super) fn peak_bytes(&self) -> Option<u64> {
        self.seen().peak_bytes
    }

    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// The largest use of `/dev/shm` by the probe's processes.
    pub(super) fn shared_peak_bytes(&self) -> u64 {
        self.seen().shared.peak_bytes()
    }

    /// That `/dev/shm` was full, in words, if it was.
    pub(super) fn shared_is_full(&self) -> Option<String> {
        self.seen().shared.full()
    }

    /// The share of the processors' time that others used while the probe ran, where the processors were full: what
    /// others used then was not there for the probe. With a tenth idle there was room for both.
    pub(super) fn foreign_cpu_share(&self) -> Option<f64> {
        const IDLE: f64 = 0.1;
        const FOREIGN: f64 = 0.1;
        let shares = self.seen().last_times?.since(&self.first_times?)?;
        let foreign = shares.foreign + shares.stolen;
        (shares.idle < IDLE && foreign >= FOREIGN).then_some(foreign)
    }

    /// Whether the kernel killed any process for lack of memory since the watch began.
    pub(super) fn oom_killed(&self) -> bool {
        OomKills::read().rose_since(&self.kills)
    }
}

/// Looks at the processes until the watch is over: often at first, then once a second.
///
/// The kernel walks all page tables of a process to add its memory up, 17 ms for a GiB of small pages on a Xeon of 2023;
/// so it has a thread of its own, and large processes are looked at less often: 1 % of the time at most.
fn watch(root: u32, seen: &Mutex<Seen>, ended: &Receiver<()>) {
    const SHARE_OF_TIME: u32 = 100;
    for looks in 0_u32.. {
        let cost = look_at_processes(root, seen);
        let usual = Duration::from_millis(if looks < 10 { 200 } else { 1000 });
        if ended.recv_timeout(usual.max(cost * SHARE_OF_TIME)) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
}

/// Looks at the processes once; how long it took.
fn look_at_processes(root: u32, seen: &Mutex<Seen>) -> Duration {
    let begin = Instant::now();
    let living = descendants(root);
    let mut pids = living.clone();
    pids.push(root);
    let (times, files, held) = (ProcessorTimes::read(&pids), files_of(&pids), memory_of(&pids));
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.own.extend(&living);
    seen.living = living;
    seen.last_times = times.or(seen.last_times);
    seen.shared.see(files);
    seen.held_bytes = held;
    seen.peak_bytes = seen.peak_bytes.max(Some(held).filter(|&bytes| bytes > 0));
    seen.cost = begin.elapsed();
    seen.cost
}
