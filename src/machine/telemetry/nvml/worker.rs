//! The thread that makes all calls to NVML.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;

use super::ask::{Questions, Told};
use super::changes::Settings;
use super::evaluate::{Circumstances, evaluate};
use super::list::{Handle, handles};
use super::owners::{Owner, Owners};
use super::watched::{Watched, memory, now_in_micros, processes};
use super::{GpuIdentity, Metered, Visible, Window};
use crate::machine::telemetry::{Dcgm, GpuMemory, GpuProcess, GpuState, UNEXPLAINED_BYTES, pause_after, thread_time};

/// A request to the thread: its function sends the answer. The requester may have given up waiting.
pub(super) type Request = Box<dyn FnOnce(&mut Worker) + Send>;

pub(super) struct Worker {
    pub(super) nvml: &'static Nvml,
    session: Option<Session>,
    /// The settings of each GPU when this thread first used it, by UUID.
    first_settings: BTreeMap<String, Settings>,
}

/// The watch over one probe.
struct Session {
    owners: Owners,
    idle: GpuState,
    watched: Vec<Watched>,
    /// The source for metrics that GPM does not report.
    dcgm: Option<Dcgm>,
    /// The reason why there is no GPU to watch.
    failure: Option<String>,
    next_counters: Instant,
    next_states: Instant,
    looks: u32,
}

/// The interval between two readings of the same kind.
#[derive(Clone, Copy)]
struct Rhythm {
    /// The interval while a reading costs next to nothing.
    usual: Duration,
    /// The longest interval, whatever a reading costs: a window without two readings would give no numbers.
    longest: Duration,
}

const COUNTERS: Rhythm = Rhythm { usual: Duration::from_millis(200), longest: Duration::from_secs(4) };
const STATES: Rhythm = Rhythm { usual: Duration::from_secs(1), longest: Duration::from_secs(5) };
/// The first readings of states are closer together, because a step may end, or a device be lost, early on.
const FIRST_LOOKS: u32 = 8;
const FIRST_STATES: Rhythm = Rhythm { usual: Duration::from_millis(250), ..STATES };

impl Rhythm {
    /// Returns when the next reading is due after a reading that took this much CPU time.
    fn next(self, begin: Instant, cost: Duration) -> Instant {
        begin + pause_after(cost, self.usual).min(self.longest)
    }
}

impl Worker {
    pub(super) fn new(nvml: &'static Nvml) -> Self {
        Self { nvml, session: None, first_settings: BTreeMap::new() }
    }

    /// Serves requests until all senders are gone; `answered` counts the finished requests.
    pub(super) fn serve(mut self, requests: &Receiver<Request>, answered: &Arc<AtomicU64>) {
        const LONG: Duration = Duration::from_secs(3600);
        loop {
            let next = self.session.as_ref().map(|session| session.next_counters.min(session.next_states));
            let wait = next.map_or(LONG, |next| next.saturating_duration_since(Instant::now()));
            match requests.recv_timeout(wait) {
                Ok(request) => {
                    request(&mut self);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(session) = &mut self.session {
                session.tick(self.nvml);
            }
        }
    }

    /// Watches a probe: the process `root` and its descendants. `idle` is the state before the probe.
    pub(super) fn begin(&mut self, visible: &Visible, root: u32, idle: GpuState) {
        self.session = Some(Session::begin(self.chosen(visible), self.nvml, root, idle));
    }

    /// Reads the counters and states of the watched GPUs now.
    pub(super) fn look(&mut self) {
        if let Some(session) = &mut self.session {
            session.look_at_all(self.nvml);
        }
    }

    /// Ends the watch, and returns the activity in a window.
    pub(super) fn end(&mut self, window: Window) -> Told<Metered> {
        let metered = self.metered(window);
        self.session = None;
        metered
    }

    /// Returns the activity of the watched GPUs in a window.
    pub(super) fn metered(&self, window: Window) -> Told<Metered> {
        let session = self.session.as_ref().ok_or("the probe was not watched")?;
        session.metered(self.nvml, window, &self.first_settings)
    }

    fn chosen(&mut self, visible: &Visible) -> Told<Vec<Handle>> {
        let found = handles(self.nvml)?;
        let identities: Vec<GpuIdentity> = found.iter().map(|handle| handle.identity.clone()).collect();
        let places = visible.choose(&identities);
        let chosen = found.into_iter().enumerate().filter(|(at, _)| places.contains(at)).map(|(_, handle)| handle);
        let chosen: Vec<Handle> = chosen.collect();
        for handle in &chosen {
            let first = self.first_settings.entry(handle.identity.uuid.clone());
            first.or_insert_with(|| Settings::read(handle.whole()));
        }
        Ok(chosen)
    }

    /// Reads the memory of the visible GPUs, and the processes on them.
    pub(super) fn read(&mut self, visible: &Visible) -> Told<GpuState> {
        let mut state = GpuState::default();
        for Handle { identity, device, .. } in &self.chosen(visible)? {
            let asked = &mut Questions::default();
            let Ok(memory) = memory(device, asked) else { continue };
            let (place, uuid) = (identity.place(), identity.uuid.clone());
            state.gpus.push(GpuMemory { place, uuid, used_bytes: memory.used, total_bytes: memory.total });
            let listed = processes(device, asked, memory.total);
            let uuid = &identity.uuid;
            let process = |(pid, used_bytes)| GpuProcess { uuid: uuid.clone(), pid, used_bytes };
            state.processes.extend(listed.unwrap_or_default().into_iter().map(process));
        }
        Ok(state)
    }
}

impl Session {
    fn begin(chosen: Told<Vec<Handle>>, nvml: &'static Nvml, root: u32, idle: GpuState) -> Self {
        let (chosen, failure) = match chosen {
            Ok(chosen) if chosen.is_empty() => (chosen, Some("CUDA_VISIBLE_DEVICES leaves no GPU".to_owned())),
            Ok(chosen) => (chosen, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let watched = chosen.into_iter().map(|handle| Watched::new(nvml, handle)).collect();
        let (owners, now) = (Owners::below(root), Instant::now());
        Self { owners, idle, watched, dcgm: None, failure, next_counters: now, next_states: now, looks: 0 }
    }

    fn tick(&mut self, nvml: &'static Nvml) {
        let begin = Instant::now();
        if begin >= self.next_counters {
            let before = thread_time();
            self.watched.iter_mut().for_each(|watched| watched.look_at_counters(nvml));
            self.ask_dcgm();
            self.next_counters = COUNTERS.next(begin, thread_time().saturating_sub(before));
        }
        let begin = Instant::now();
        if begin >= self.next_states {
            let before = thread_time();
            self.watched.iter_mut().for_each(|watched| watched.look_at_states(&mut self.owners));
            self.looks += 1;
            let rhythm = if self.looks <= FIRST_LOOKS { FIRST_STATES } else { STATES };
            self.next_states = rhythm.next(begin, thread_time().saturating_sub(before));
        }
    }

    /// Starts to listen to a DCGM host engine for GPUs that lack GPM. The engine knows no UUIDs of MIG instances.
    fn ask_dcgm(&mut self) {
        let without = self.watched.iter().filter(|watched| watched.gpm.failure().is_some());
        let uuids: Vec<String> = without.map(|watched| watched.handle.identity.uuid.clone()).collect();
        let uuids: Vec<String> = uuids.into_iter().filter(|uuid| uuid.starts_with("GPU-")).collect();
        if self.dcgm.is_none() && !uuids.is_empty() {
            self.dcgm = Some(Dcgm::listen(&uuids));
        }
    }

    fn look_at_all(&mut self, nvml: &'static Nvml) {
        let now = Instant::now();
        (self.next_counters, self.next_states) = (now, now);
        self.tick(nvml);
    }

    fn metered(
        &self,
        nvml: &'static Nvml,
        window: Window,
        first_settings: &BTreeMap<String, Settings>,
    ) -> Told<Metered> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let is_matched = self.watched.iter().any(|watched| self.is_matched_on(watched));
        let (now, now_in_micros) = (Instant::now(), now_in_micros());
        let ago = |time: Instant| {
            let ago = now.saturating_duration_since(time).as_micros();
            now_in_micros.saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX))
        };
        let clock = (ago(window.begin), ago(window.end));
        let mut metered = Metered::default();
        for watched in &self.watched {
            let place = watched.handle.identity.place();
            metered.xids.extend(watched.xids.iter().map(|code| format!("Xid {code} of {place}")));
            if !self.is_used(watched, is_matched) {
                continue;
            }
            let nothing = Settings::default();
            let first_settings = first_settings.get(&watched.handle.identity.uuid).unwrap_or(&nothing);
            let (owners, idle, dcgm) = (&self.owners, &self.idle, self.dcgm.as_ref());
            let of = Circumstances { nvml, window, clock, owners, idle, is_matched, first_settings, dcgm };
            let (gpu, disturbances) = evaluate(watched, &of);
            metered.gpus.push(gpu);
            metered.disturbances.extend(disturbances);
        }
        if metered.gpus.is_empty() {
            return Err("no process of the probe was seen on a GPU".to_owned());
        }
        Ok(metered)
    }

    /// Returns true if a process of the probe was seen on the GPU.
    fn is_matched_on(&self, watched: &Watched) -> bool {
        let mut seen = watched.states.iter().filter_map(|look| look.processes.as_ref().ok()).flatten();
        seen.any(|(pid, _)| self.owners.of(*pid) == Owner::Own)
    }

    /// Returns true if the probe used the GPU. The GPU's processes show it, if they can be identified. Otherwise, the
    /// memory in use must have risen since the probe began. A device that reports neither counts as used.
    fn is_used(&self, watched: &Watched, is_matched: bool) -> bool {
        if is_matched {
            return self.is_matched_on(watched);
        }
        let used: Told<Vec<u64>> = watched.states.iter().map(|look| Ok(look.memory.clone()?.used)).collect();
        let most = used.ok().and_then(|used| used.into_iter().max());
        match most.zip(self.idle.used_of(&watched.handle.identity.uuid)) {
            Some((used, before)) => used > before + UNEXPLAINED_BYTES,
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_spaced_by_what_they_cost() {
        let now = Instant::now();
        let pause = |rhythm: Rhythm, micros| rhythm.next(now, Duration::from_micros(micros)).duration_since(now);
        assert_eq!(pause(COUNTERS, 80), Duration::from_millis(200));
        for rhythm in [COUNTERS, STATES, FIRST_STATES] {
            assert_eq!(pause(rhythm, 2000), Duration::from_millis(2500), "2 ms, 0.08 % of it");
            assert_eq!(pause(rhythm, 100_000), rhythm.longest);
        }
    }
}
