//! Waits between two probes until memory use is back at its level before the first probe.
//!
//! gputune does not wait for host memory, because the kernel frees it when the processes end. So the search goes on if
//! other programs of a shared machine take memory. A probe that runs short because of other programs counts as
//! disturbed.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::{ProbeError, Watch};
use crate::machine::{
    GpuMemory, GpuMeter, GpuProcess, GpuState, SharedMemory, UNEXPLAINED_BYTES,
    nvml::Visible,
    process_table::{all, named},
    shared::{FOLDER, files_of},
};
use crate::model::{Failure, Memory, Outcome, Progress, quantity::show_bytes};

/// How long memory may take to come back: the driver releases it after a process ends. A round number.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for a new program on a GPU to end. It is longer than a run of nvidia-smi. A longer wait gains
/// nothing: programs of other users stay for hours, and the probes' own processes have ended. A round number.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(3);

/// The share of the initially free shared memory that must be free again. Other programs may use the rest; gputune
/// removes what probes leave. A round number.
const SHARED_FREE: f64 = 0.5;

/// The memory that was in use before the first probe.
#[derive(Debug)]
pub(super) struct Idle {
    shared: Option<SharedMemory>,
    meter: Option<&'static GpuMeter>,
    gpu: Option<GpuState>,
    /// New programs on a GPU that did not end in time. Their memory is accepted.
    settled: BTreeSet<u32>,
    patience: Duration,
}

/// Memory that is not back.
struct Held {
    place: String,
    bytes: u64,
    /// The process that holds it, if it is visible.
    holder: Option<String>,
    /// The process id of the holder, if it is a new program on a GPU.
    newcomer: Option<u32>,
}

impl Idle {
    pub(super) fn read(meter: Option<&'static GpuMeter>) -> Self {
        let gpu = meter.and_then(|meter| meter.read(&Visible::default()).ok());
        Self { shared: SharedMemory::read(), meter, gpu, settled: BTreeSet::new(), patience: PATIENCE }
    }

    /// Makes a slot next to other slots, which also use shared memory, wait only for its GPUs.
    pub(super) fn beside_others(self) -> Self {
        Self { shared: None, ..self }
    }

    /// Waits until memory is back. Returns `Break` if the caller does not want to wait any longer.
    ///
    /// Waits for a new program on a GPU only once. If the program stays, its memory is accepted from then on.
    ///
    /// # Errors
    /// The memory does not come back.
    pub(super) fn wait(&mut self, visible: &Visible, watch: Watch<'_>) -> Result<ControlFlow<()>, ProbeError> {
        let mut begin = Instant::now();
        while let Some(held) = self.held(visible) {
            let Held { place, bytes, holder, newcomer } = held;
            if let Some(newcomer) = newcomer.filter(|_| begin.elapsed() >= PATIENCE_WITH_OTHERS) {
                self.settled.insert(newcomer);
                begin = Instant::now();
                continue;
            }
            if begin.elapsed() >= self.patience {
                return Err(ProbeError::MemoryHeld { place, bytes, holder });
            }
            let progress = Progress { unit: "samples/s".to_owned(), ..Progress::default() };
            if watch(&progress).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(ControlFlow::Continue(()))
    }

    pub(super) fn gpu_state(&self, visible: &Visible) -> GpuState {
        self.meter.and_then(|meter| meter.read(visible).ok()).unwrap_or_default()
    }

    /// Returns the outcome, or `Disturbed` if GPU memory ran out while a new program held a part of it: the outcome
    /// then says nothing about the config. A program is new if it came after the first probe began. `own` are the
    /// probe's processes, which a driver may list after their end.
    pub(super) fn judge(&self, outcome: Outcome, visible: &Visible, own: &BTreeSet<u32>) -> Outcome {
        let Outcome::OutOfMemory { memory: Memory::Device, failure } = outcome else { return outcome };
        let now = self.gpu_state(visible);
        match self.gpu.as_ref().and_then(|before| largest_newcomer(before, &now, own)) {
            Some((place, process)) => {
                let taken = process.used_bytes.map_or_else(|| "memory".to_owned(), show_bytes);
                let name = named(process.pid);
                let reason = format!("{}; {name} has taken {taken} of {place} meanwhile", failure.reason);
                Outcome::Disturbed(Failure { reason, ..failure })
            }
            None => Outcome::OutOfMemory { memory: Memory::Device, failure },
        }
    }

    fn held(&self, visible: &Visible) -> Option<Held> {
        let on_gpu = || held_on_gpu(self.gpu.as_ref()?, &self.gpu_state(visible), &self.settled);
        self.held_in_shared().or_else(on_gpu)
    }

    fn held_in_shared(&self) -> Option<Held> {
        let (before, now) = (self.shared?, SharedMemory::read()?);
        let is_back = now.free_bytes as f64 >= before.free_bytes as f64 * SHARED_FREE;
        (!is_back).then(|| Held {
            place: FOLDER.to_owned(),
            bytes: before.free_bytes.saturating_sub(now.free_bytes),
            holder: largest_in_shared(),
            newcomer: None,
        })
    }
}

/// Finds memory of a GPU that was free before. It belongs to a new program that is not `settled`, or to no program that
/// the driver lists.
fn held_on_gpu(before: &GpuState, now: &GpuState, settled: &BTreeSet<u32>) -> Option<Held> {
    now.gpus.iter().find_map(|gpu| {
        // A GPU that was not seen before the first probe cannot be compared.
        let grown = gpu.used_bytes.checked_sub(before.used_of(&gpu.uuid)?)?;
        let of_it = |process: &&GpuProcess| process.uuid == gpu.uuid;
        let newcomer = now.processes.iter().filter(of_it).find(|process| {
            let is_new = !before.has(process.pid, &gpu.uuid) && !settled.contains(&process.pid);
            is_new && process.used_bytes.is_none_or(|bytes| bytes > UNEXPLAINED_BYTES)
        });
        if let Some(process) = newcomer {
            let (place, bytes) = (gpu.place.clone(), process.used_bytes.unwrap_or(grown));
            return Some(Held { place, bytes, holder: Some(named(process.pid)), newcomer: Some(process.pid) });
        }
        let bytes = grown.saturating_sub(taken_by_others(before, now, gpu, grown));
        (bytes > UNEXPLAINED_BYTES).then(|| Held { place: gpu.place.clone(), bytes, holder: None, newcomer: None })
    })
}

/// Returns how much more of a GPU the listed processes hold than before. If the driver does not report the memory of a
/// process, the process may hold all of the growth.
fn taken_by_others(before: &GpuState, now: &GpuState, gpu: &GpuMemory, grown: u64) -> u64 {
    let held_before = |pid: u32| {
        let same = before.processes.iter().find(|process| process.pid == pid && process.uuid == gpu.uuid);
        same.map_or(Some(0), |process| process.used_bytes)
    };
    let of_it = now.processes.iter().filter(|process| process.uuid == gpu.uuid);
    let taken = of_it.map(|process| match process.used_bytes.zip(held_before(process.pid)) {
        Some((bytes, earlier)) => bytes.saturating_sub(earlier),
        None => grown,
    });
    taken.fold(0, u64::saturating_add)
}

fn largest_newcomer<'n>(
    before: &GpuState,
    now: &'n GpuState,
    own: &BTreeSet<u32>,
) -> Option<(&'n str, &'n GpuProcess)> {
    let is_new = |process: &&GpuProcess| !before.has(process.pid, &process.uuid) && !own.contains(&process.pid);
    let largest = now.processes.iter().filter(is_new).max_by_key(|process| process.used_bytes)?;
    let gpu = now.gpus.iter().find(|gpu| gpu.uuid == largest.uuid)?;
    Some((&gpu.place, largest))
}

fn largest_in_shared() -> Option<String> {
    let held = |pid: u32| files_of(&[pid]).values().map(|file| file.bytes).sum::<u64>();
    let (bytes, pid) = all().into_iter().map(|pid| (held(pid), pid)).max()?;
    (bytes > 0).then(|| named(pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Makes the state of a GPU with this much used memory and these processes, in MiB.
    fn state(used: u64, processes: &[(u32, Option<u64>)]) -> GpuState {
        let (place, uuid) = ("GPU 0".to_owned(), "GPU-a1".to_owned());
        let process = |&(pid, held): &(u32, Option<u64>)| GpuProcess {
            uuid: uuid.clone(),
            pid,
            used_bytes: held.map(|mib| mib * MIB),
        };
        let processes = processes.iter().map(process).collect();
        let gpu = GpuMemory { place, uuid: uuid.clone(), used_bytes: used * MIB, total_bytes: 81559 * MIB };
        GpuState { gpus: vec![gpu], processes }
    }

    #[test]
    fn gpu_memory_is_blamed_on_who_holds_it() {
        let before = state(400, &[(12, Some(390))]);
        let nobody = BTreeSet::new();
        assert!(held_on_gpu(&before, &before, &nobody).is_none());
        assert!(held_on_gpu(&before, &state(460, &[(12, Some(390))]), &nobody).is_none(), "within the tolerance");
        assert!(held_on_gpu(&before, &state(2400, &[(12, Some(2390))]), &nobody).is_none(), "it was there before");

        let left = held_on_gpu(&before, &state(2400, &[(12, Some(390))]), &nobody).unwrap();
        assert_eq!((left.bytes / MIB, left.holder.is_none()), (2000, true), "memory without a visible holder");
        let own = std::process::id();
        let now = state(2400, &[(12, Some(390)), (own, Some(2000))]);
        let held = held_on_gpu(&before, &now, &nobody).unwrap();
        assert_eq!((held.bytes / MIB, held.newcomer), (2000, Some(own)));
        assert!(held.holder.unwrap().starts_with(&format!("process {own} (`")));
        assert!(held_on_gpu(&before, &now, &BTreeSet::from([own])).is_none(), "it has settled");
        let silent = state(2400, &[(12, None), (own, None)]);
        assert!(held_on_gpu(&before, &silent, &BTreeSet::from([own])).is_none(), "who does not tell may hold it");
    }

    #[test]
    fn a_lack_of_gpu_memory_is_another_programs_where_it_came_meanwhile() {
        let before = state(400, &[(12, Some(390))]);
        let now = state(2400, &[(12, Some(390)), (13, Some(500)), (14, Some(1500))]);
        let (place, process) = largest_newcomer(&before, &now, &BTreeSet::new()).unwrap();
        assert_eq!((place, process.pid), ("GPU 0", 14));
        assert!(largest_newcomer(&before, &now, &BTreeSet::from([13, 14])).is_none(), "the probe's own, not yet gone");
    }

    #[test]
    fn shared_memory_is_waited_for_and_its_holder_named() {
        let Some(now) = SharedMemory::read() else { return };
        // Pretends that more memory was free before than now.
        let before = SharedMemory { total_bytes: now.total_bytes * 4, free_bytes: now.total_bytes * 4 };
        let patience = Duration::from_millis(100);
        let visible = Visible::default();
        let mut idle = Idle { shared: Some(before), patience, ..Idle::read(None) };
        let error = idle.wait(&visible, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(error.contains("more of /dev/shm than before the first probe"), "{error}");
        idle.patience = Duration::from_secs(600);
        assert!(idle.wait(&visible, &mut |_| ControlFlow::Break(())).unwrap().is_break(), "an interruption is heard");
        // Other programs may take some of it meanwhile.
        let less = SharedMemory { free_bytes: now.free_bytes / 2, ..now };
        let mut idle = Idle { shared: Some(less), patience, ..Idle::read(None) };
        assert!(idle.wait(&visible, &mut |_| ControlFlow::Continue(())).unwrap().is_continue());
    }
}
