//! Watches the machine while a probe runs: the processes' memory, a coming shortage of host memory, and the use of the
//! CPUs. Also reads the processes' counters over the measured time.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::cgroup::Cgroup;
use super::gpu_watch::GpuWatch;
use super::growth::{Holding, growths};
use super::live::Live;
use super::locked;
use super::shared_watch::SharedWatch;
use crate::machine::{
    HostMemory, HostMeter, OomKills, ProcessorTimes, SharedMemory,
    process_table::descendants,
    shared::files_of,
    telemetry::{anonymous_memory_of, memory_of, pause_after, shared_memory_of, thread_time, waited_for_processor},
};
use crate::model::{DeviceReadings, Growth, Headroom, Readings, quantity::show_bytes};

pub(super) struct Shortage {
    /// True if the probe's own processes hold more than their slot's share, or more than a quarter of the used memory.
    pub(super) by_probe: bool,
    pub(super) reason: String,
}

pub(super) struct HostWatch {
    root: u32,
    headroom: Headroom,
    /// The probe's share of the host memory, if other probes have the rest.
    share_bytes: Option<u64>,
    next: Option<Instant>,
    pub(super) total_bytes: Option<u64>,
    kills: OomKills,
    first_times: Option<ProcessorTimes>,
    seen: Arc<Mutex<Seen>>,
    meter: Arc<Mutex<HostMeter>>,
    live: Live,
    /// Dropping this sender ends the thread of [`watch`].
    _end: Sender<()>,
}

/// The state of the processes at the last walk: the last time when the kernel added up their memory.
struct Walk {
    at: Instant,
    pids: Vec<u32>,
    held_bytes: u64,
    anonymous_bytes: u64,
    shared_free_bytes: Option<u64>,
}

#[derive(Default)]
struct Seen {
    held_bytes: u64,
    peak_bytes: Option<u64>,
    walk: Option<Walk>,
    shared: SharedWatch,
    zygote: Option<u32>,
    living: Vec<u32>,
    /// Every process that was ever seen below the root.
    own: BTreeSet<u32>,
    last_times: Option<ProcessorTimes>,
    holdings: Vec<Holding>,
    /// How long the last walk took.
    cost: Duration,
}

impl HostWatch {
    /// Makes a watch on a process and its descendants. `shared` was made before the probe began.
    ///
    /// `zygote` is the process from which the probe was forked. Pages that they still share count as the probe's pages.
    pub(super) fn new(
        root: u32,
        zygote: Option<u32>,
        headroom: Headroom,
        share_bytes: Option<u64>,
        shared: SharedWatch,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Seen { shared, zygote, ..Seen::default() }));
        let meter = Arc::new(Mutex::new(HostMeter::new(root, Cgroup::folder_of(root))));
        let (end, ended) = channel();
        let (theirs, their_meter) = (Arc::clone(&seen), Arc::clone(&meter));
        let watch = move || watch(&theirs, &their_meter, &ended);
        // If the thread cannot be started, a few numbers are missing, but the probe can continue.
        let _ = std::thread::Builder::new().name("host watch".to_owned()).spawn(watch);
        Self {
            root,
            headroom,
            share_bytes,
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

    /// Starts the peaks and shares anew for the next config of the processes.
    pub(super) fn begin_anew(&mut self) {
        self.last_look();
        let pids: Vec<u32> = [self.root].into_iter().chain(self.living()).collect();
        self.first_times = ProcessorTimes::read(&pids);
        self.kills = OomKills::read();
        let mut seen = self.seen();
        seen.peak_bytes = None;
        seen.shared.begin_anew();
        seen.last_times = None;
        seen.holdings.clear();
        let held = seen.held_bytes;
        seen.holds(held);
    }

    pub(super) fn look(&mut self, now: Instant) -> ControlFlow<Shortage> {
        self.seen().shared.glance();
        if self.next.is_some_and(|next| now < next) {
            return ControlFlow::Continue(());
        }
        self.next = Some(now + Duration::from_millis(200));
        let Some(memory) = HostMemory::read() else { return ControlFlow::Continue(()) };
        self.total_bytes = self.share_bytes.or(Some(memory.total_bytes));
        let held = self.seen().held_bytes;
        if let Some(share) = self.share_bytes.filter(|share| held > *share) {
            let reason = format!("the probe holds {}, and its slot has {}", show_bytes(held), show_bytes(share));
            return ControlFlow::Break(Shortage { by_probe: true, reason });
        }
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

    /// Looks at everything once more while the processes still exist. Leaves out the walk if it takes long.
    pub(super) fn last_look(&self) {
        const LONG: Duration = Duration::from_millis(200);
        let pids = {
            let mut meter = locked(&self.meter);
            meter.look();
            meter.pids().to_vec()
        };
        follow_memory(&pids, &self.seen, &self.meter);
        look_at_holding(&pids, &self.seen);
        if self.seen().cost < LONG {
            walk_memory(&pids, &self.seen, &self.meter);
        }
        let living = descendants(self.root);
        let mut seen = self.seen();
        seen.shared.glance();
        seen.own.extend(&living);
        seen.living = living;
    }

    /// Removes the shared memory that the probe's processes left, after they are gone.
    pub(super) fn clean(&self) {
        let seen = self.seen();
        seen.shared.clean(&seen.own);
    }

    pub(super) fn living(&self) -> Vec<u32> {
        self.seen().living.clone()
    }

    /// Returns the probe's processes, past and present.
    pub(super) fn own(&self) -> BTreeSet<u32> {
        self.seen().own.clone()
    }

    pub(super) fn peak_bytes(&self) -> Option<u64> {
        self.seen().peak_bytes
    }

    pub(super) fn shared_peak_bytes(&self) -> u64 {
        self.seen().shared.peak_bytes
    }

    pub(super) fn shared_is_full(&self) -> Option<String> {
        self.seen().shared.full()
    }

    /// Returns the share of CPU time that other programs used while the probe ran, if the CPUs were full. The probe then lacked
    /// that time. Returns `None` if the CPUs were not full, or the share is small.
    pub(super) fn foreign_cpu_share(&self) -> Option<f64> {
        /// The CPUs are not full if at least this share of their time is idle: a round number.
        const IDLE: f64 = 0.1;
        /// The smallest reported share: a round number.
        const FOREIGN: f64 = 0.1;
        let shares = self.seen().last_times?.since(&self.first_times?)?;
        let foreign = shares.foreign + shares.stolen;
        (shares.idle < IDLE && foreign >= FOREIGN).then_some(foreign)
    }

    /// Returns the longest time that the first thread of one of the probe's processes waited for a CPU since the process began.
    pub(super) fn waited_for_processor(&self) -> Duration {
        let waits = self.living().into_iter().filter_map(|pid| waited_for_processor(&pid.to_string()));
        waits.max().unwrap_or_default()
    }

    pub(super) fn readings(&self, (from, to): (Instant, Instant)) -> Readings {
        locked(&self.meter).readings(from, to)
    }

    pub(super) fn growth(&self, span: (Instant, Instant), steps: &dyn Fn(Instant) -> f64) -> Vec<Growth> {
        growths(&self.seen().holdings, span, steps)
    }

    /// Returns the readings of this machine and its GPUs over the last seconds.
    pub(super) fn live(&mut self, now: Instant, gpu: &mut GpuWatch) -> Arc<DeviceReadings> {
        let meter = Arc::clone(&self.meter);
        self.live.look(now, |from, to| locked(&meter).readings(from, to), Some(gpu))
    }

    /// Returns true if the kernel has killed any process for lack of memory since the watch began.
    pub(super) fn oom_killed(&self) -> bool {
        OomKills::read().rose_since(&self.kills)
    }
}

/// Watches the processes until the sender of `ended` is dropped. Reads their counters four times a second, and their
/// memory often at first, then once a second.
///
/// To add up a process's memory, the kernel walks all of its page tables, which takes 17 ms per GiB of small pages on a
/// Xeon of 2023. So this thread walks only after a change, and follows anonymous memory without a walk. All looks
/// become rarer if they take long: [`pause_after`] sets separate intervals for counters, following and walks.
fn watch(seen: &Mutex<Seen>, meter: &Mutex<HostMeter>, ended: &Receiver<()>) {
    /// The shortest time between two points of [`growths`]: a brief probe of a second needs several points for a trend.
    const POINTS_EVERY: Duration = Duration::from_millis(150);
    /// The points may take one part in this many of a CPU's time: 0.4%.
    const SHARE_OF_TIME: u32 = 250;
    let (mut looks, mut point_at) = (0_u32, Instant::now());
    let (mut memory_at, mut walk_at) = (Instant::now(), Instant::now());
    loop {
        let (pids, counters_at) = {
            let mut meter = locked(meter);
            let next = meter.look_in_time();
            (meter.pids().to_vec(), next)
        };
        if Instant::now() >= point_at {
            let ((), cost) = timed(|| look_at_holding(&pids, seen));
            point_at = Instant::now() + POINTS_EVERY.max(cost * SHARE_OF_TIME);
        }
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
        let pause = counters_at.min(memory_at).min(point_at).saturating_duration_since(Instant::now());
        if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
}

/// Returns the result of an action and its CPU time. On a busy machine, CPU time is far less than elapsed time.
fn timed<T>(action: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_time();
    let given = action();
    (given, thread_time().saturating_sub(before))
}

fn look_at_holding(pids: &[u32], seen: &Mutex<Seen>) {
    let holding = Holding::of(pids);
    locked(seen).holdings.push(holding);
}

/// Records the processes and their memory: the memory at the last walk, plus the change of anonymous memory. Returns
/// true if a walk is due.
fn follow_memory(pids: &[u32], seen: &Mutex<Seen>, meter: &Mutex<HostMeter>) -> bool {
    /// A walk is repeated after this time: anonymous memory does not show that processes copy shared pages.
    const OLD: Duration = Duration::from_secs(10);
    let (times, anonymous) = (ProcessorTimes::read(pids), anonymous_memory_of(pids));
    let shared_free_bytes = SharedMemory::read().map(|memory| memory.free_bytes);
    let mut seen = locked(seen);
    seen.own.extend(pids.iter().skip(1));
    seen.living = pids.iter().skip(1).copied().collect();
    seen.last_times = times.or(seen.last_times);
    let Some(walk) = seen.walk.as_ref().filter(|walk| walk.pids == pids) else { return !pids.is_empty() };
    let held = (walk.held_bytes + anonymous).saturating_sub(walk.anonymous_bytes);
    // Only several processes besides the supervisor, the first process, share pages.
    let is_old = pids.len() > 2 && walk.at.elapsed() > OLD;
    let has_changed = is_old || walk.shared_free_bytes != shared_free_bytes;
    seen.holds(held);
    drop(seen);
    locked(meter).holds(Instant::now(), held);
    has_changed
}

fn walk_memory(pids: &[u32], seen: &Mutex<Seen>, meter: &Mutex<HostMeter>) {
    let begin = Instant::now();
    let shared_free_bytes = SharedMemory::read().map(|memory| memory.free_bytes);
    let zygote = locked(seen).zygote;
    let (files, held) = (files_of(pids), memory_of(pids) + zygote.map_or(0, shared_memory_of));
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
