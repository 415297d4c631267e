//! The machine while a probe runs: the memory of its processes and its peak, whether the machine is about to run out,
//! who uses the processors, and the counters of the processes over the measured part.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cgroup::Cgroup;
use super::gpu_watch::GpuWatch;
use super::live::Live;
use super::shared_watch::SharedWatch;
use crate::machine::{
    HostMemory, HostMeter, OomKills, ProcessorTimes, SharedMemory,
    process_table::descendants,
    shared::files_of,
    telemetry::{anonymous_memory_of, memory_of, pause_after, thread_time},
};
use crate::model::{DeviceReadings, Headroom, Readings, quantity::show_bytes};

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
    live: Live,
    /// Dropping it ends the thread that looks at the processes.
    _end: Sender<()>,
}

/// The state of the processes when their memory was last added up.
struct Walk {
    at: Instant,
    pids: Vec<u32>,
    held_bytes: u64,
    anonymous_bytes: u64,
    /// What was free in shared memory.
    shared_free_bytes: Option<u64>,
}

/// What was seen of the probe's processes.
struct Seen {
    held_bytes: u64,
    peak_bytes: Option<u64>,
    walk: Option<Walk>,
    shared: SharedWatch,
    /// The processes below the root at the last look.
    living: Vec<u32>,
    /// Every process that was ever seen below the root.
    own: BTreeSet<u32>,
    last_times: Option<ProcessorTimes>,
    /// How long the last walk through their memory took.
    cost: Duration,
}

impl HostWatch {
    /// A watch on everything below a process; `shared` is from before it began.
    pub(super) fn new(root: u32, headroom: Headroom, shared: SharedWatch) -> Self {
        let seen = Arc::new(Mutex::new(Seen {
            held_bytes: 0,
            peak_bytes: None,
            walk: None,
            shared,
            living: Vec::new(),
            own: BTreeSet::new(),
            last_times: None,
            cost: Duration::ZERO,
        }));
        let meter = Arc::new(Mutex::new(HostMeter::new(root, Cgroup::folder_of(root))));
        let (end, ended) = channel();
        let (theirs, their_meter) = (Arc::clone(&seen), Arc::clone(&meter));
        let watch = move || watch(&theirs, &their_meter, &ended);
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
            live: Live::new(Instant::now()),
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
        let pids = look_at_counters(&self.meter);
        follow_memory(&pids, &self.seen, &self.meter);
        if self.seen().cost < LONG {
            walk_memory(&pids, &self.seen, &self.meter);
        }
        let living = descendants(self.root);
        let mut seen = self.seen();
        seen.shared.glance();
        seen.own.extend(&living);
        seen.living = living;
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

    /// What this machine and its GPUs told of the last seconds.
    pub(super) fn live(&mut self, now: Instant, gpu: &mut GpuWatch) -> Arc<DeviceReadings> {
        let meter = Arc::clone(&self.meter);
        self.live.look(now, |from, to| locked(&meter).readings(from, to), Some(gpu))
    }

    /// Whether the kernel killed any process for lack of memory since the watch began.
    pub(super) fn oom_killed(&self) -> bool {
        OomKills::read().rose_since(&self.kills)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at the processes until the watch is over: at their counters four times a second, at their memory often at first,
/// then once a second.
///
/// The kernel walks all page tables of a process to add its memory up, 17 ms for a GiB of small pages on a Xeon of 2023.
/// So there is a thread for it, it walks only where something has changed, and what is anonymous is followed without. All
/// of it is done less often where it takes long: counters, what is followed, and walks are three of the parts that
/// [`pause_after`] spaces.
fn watch(seen: &Mutex<Seen>, meter: &Mutex<HostMeter>, ended: &Receiver<()>) {
    let mut looks = 0_u32;
    let (mut memory_at, mut walk_at) = (Instant::now(), Instant::now());
    loop {
        let (pids, counters_at) = {
            let mut meter = locked(meter);
            let next = meter.look_in_time();
            (meter.pids().to_vec(), next)
        };
        if Instant::now() >= memory_at {
            let (has_changed, cost) = timed(|| follow_memory(&pids, seen, meter));
            let usual = Duration::from_millis(if looks < 10 { 200 } else { 1000 });
            memory_at = Instant::now() + pause_after(cost, usual);
            looks += 1;
            if has_changed && Instant::now() >= walk_at {
                let ((), cost) = timed(|| walk_memory(&pids, seen, meter));
                walk_at = Instant::now() + pause_after(cost, Duration::ZERO);
            }
        }
        let pause = counters_at.saturating_duration_since(Instant::now());
        if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
}

/// What something gives, and the processor time that it took, which on a busy machine is far less than the time.
fn timed<T>(action: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_time();
    let given = action();
    (given, thread_time().saturating_sub(before))
}

/// Looks at the counters once; the processes that there are.
fn look_at_counters(meter: &Mutex<HostMeter>) -> Vec<u32> {
    let mut meter = locked(meter);
    meter.look();
    meter.pids().to_vec()
}

/// Takes note of who there is and of what memory has been added since it was last walked through; whether that calls for
/// a walk.
fn follow_memory(pids: &[u32], seen: &Mutex<Seen>, meter: &Mutex<HostMeter>) -> bool {
    /// Processes that share pages make copies of them, which the count of what is anonymous does not show.
    const OLD: Duration = Duration::from_secs(10);
    let (times, anonymous) = (ProcessorTimes::read(pids), anonymous_memory_of(pids));
    let shared_free_bytes = SharedMemory::read().map(|memory| memory.free_bytes);
    let mut seen = locked(seen);
    seen.own.extend(pids.iter().skip(1));
    seen.living = pids.iter().skip(1).copied().collect();
    seen.last_times = times.or(seen.last_times);
    let Some(walk) = seen.walk.as_ref().filter(|walk| walk.pids == pids) else { return !pids.is_empty() };
    let held = (walk.held_bytes + anonymous).saturating_sub(walk.anonymous_bytes);
    // The first is the supervisor, which shares nothing.
    let is_old = pids.len() > 2 && walk.at.elapsed() > OLD;
    let has_changed = is_old || walk.shared_free_bytes != shared_free_bytes;
    seen.holds(held);
    drop(seen);
    locked(meter).holds(Instant::now(), held);
    has_changed
}

/// Adds the memory of the processes up.
fn walk_memory(pids: &[u32], seen: &Mutex<Seen>, meter: &Mutex<HostMeter>) {
    let begin = Instant::now();
    let shared_free_bytes = SharedMemory::read().map(|memory| memory.free_bytes);
    let (files, held) = (files_of(pids), memory_of(pids));
    let anonymous_bytes = anonymous_memory_of(pids);
    let walk = Walk { at: begin, pids: pids.to_vec(), held_bytes: held, anonymous_bytes, shared_free_bytes };
    if held > 0 {
        locked(meter).holds(Instant::now(), held);
    }
    let mut seen = locked(seen);
    seen.shared.see(files);
    let Seen { shared, own, .. } = &mut *seen;
    shared.record(own);
    seen.holds(held);
    seen.walk = Some(walk);
    seen.cost = begin.elapsed();
}

impl Seen {
    fn holds(&mut self, bytes: u64) {
        self.held_bytes = bytes;
        self.peak_bytes = self.peak_bytes.max(Some(bytes).filter(|&bytes| bytes > 0));
    }
}
