//! The machine while a probe runs: the memory of its processes and its peak, whether the machine is about to run out,
//! who uses the processors, and the counters of the processes over the measured part.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cgroup::Cgroup;
use super::shared_watch::SharedWatch;
use crate::metric::Readings;
use crate::objective::Headroom;
use crate::process_table::descendants;
use crate::quantity::show_bytes;
use crate::telemetry::shared::files_of;
use crate::telemetry::{HostMemory, HostMeter, OomKills, ProcessorTimes, memory_of, thread_time};

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
    meter: Arc<Mutex<HostMeter>>,
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
        let meter = Arc::new(Mutex::new(HostMeter::new(root, Cgroup::folder_of(root))));
        let (end, ended) = channel();
        let (theirs, their_meter) = (Arc::clone(&seen), Arc::clone(&meter));
        let watch = move || watch(root, &theirs, &their_meter, &ended);
        // Without the thread a few numbers are missing; the probe goes on.
        let _ = std::thread::Builder::new().name("host watch".to_owned()).spawn(watch);
        Self {
            root,
            headroom,
            next: None,
            total_bytes: None,
            kills: OomKills::read(),
            first_times: ProcessorTimes::read(&[root]),
            seen,
            meter,
            _end: end,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        locked(&self.seen)
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
        locked(&self.meter).look();
        if self.seen().cost < LONG {
            look_at_processes(self.root, &self.seen, &self.meter);
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

    /// What the counters say about the time between two moments.
    pub(super) fn readings(&self, (from, to): (Instant, Instant)) -> Readings {
        locked(&self.meter).readings(from, to)
    }

    /// Whether the kernel killed any process for lack of memory since the watch began.
    pub(super) fn oom_killed(&self) -> bool {
        OomKills::read().rose_since(&self.kills)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at the processes until the watch is over: at their memory often at first, then once a second, and at their
/// counters four times a second.
///
/// The kernel walks all page tables of a process to add its memory up, 17 ms for a GiB of small pages on a Xeon of 2023;
/// so it has a thread of its own, and large processes are looked at less often: 1 % of the time at most. Counters are
/// cheap; with very many processes they are read less often: 0.25 % of one processor at most.
fn watch(root: u32, seen: &Mutex<Seen>, meter: &Mutex<HostMeter>, ended: &Receiver<()>) {
    const MEMORY_SHARE: u32 = 100;
    const COUNTERS_SHARE: u32 = 400;
    const COUNTERS: Duration = Duration::from_millis(250);
    let mut looks = 0_u32;
    let (mut memory_at, mut counters_at) = (Instant::now(), Instant::now());
    loop {
        if Instant::now() >= counters_at {
            let cost = look_at_counters(meter);
            counters_at = Instant::now() + COUNTERS.max(cost * COUNTERS_SHARE);
        }
        if Instant::now() >= memory_at {
            let cost = look_at_processes(root, seen, meter);
            let usual = Duration::from_millis(if looks < 10 { 200 } else { 1000 });
            memory_at = Instant::now() + usual.max(cost * MEMORY_SHARE);
            looks += 1;
        }
        let pause = memory_at.min(counters_at).saturating_duration_since(Instant::now());
        if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
}

/// Looks at the counters once; the processor time that it took, which on a busy machine is far less than the time.
fn look_at_counters(meter: &Mutex<HostMeter>) -> Duration {
    let (begin, before) = (Instant::now(), thread_time());
    locked(meter).look();
    let spent = thread_time().zip(before).map(|(now, before)| now.saturating_sub(before));
    spent.unwrap_or_else(|| begin.elapsed())
}

/// Looks at the processes once; how long it took.
fn look_at_processes(root: u32, seen: &Mutex<Seen>, meter: &Mutex<HostMeter>) -> Duration {
    let begin = Instant::now();
    let living = descendants(root);
    let mut pids = living.clone();
    pids.push(root);
    let (times, files, held) = (ProcessorTimes::read(&pids), files_of(&pids), memory_of(&pids));
    if held > 0 {
        locked(meter).holds(Instant::now(), held);
    }
    let mut seen = locked(seen);
    seen.own.extend(&living);
    seen.living = living;
    seen.last_times = times.or(seen.last_times);
    seen.shared.see(files);
    seen.held_bytes = held;
    seen.peak_bytes = seen.peak_bytes.max(Some(held).filter(|&bytes| bytes > 0));
    seen.cost = begin.elapsed();
    seen.cost
}
