//! Memory between two probes: back to what it was before the first.
//!
//! Host memory is not waited for: it is the processes', and those are gone; what others take of a shared machine's is no
//! reason to stop, and a probe that runs short of it for their sake is disturbed.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::{ProbeError, Watch};
use crate::event::Progress;
use crate::outcome::{Failure, Memory, Outcome};
use crate::process_table::{all, command};
use crate::quantity::show_bytes;
use crate::telemetry::shared::{FOLDER, files_of};
use crate::telemetry::{GpuMemory, GpuReader, GpuState, SharedMemory};

/// How long memory may take to come back: a driver takes a process apart after its end.
const PATIENCE: Duration = Duration::from_secs(30);

/// GPU memory that may be in use beyond what was before the first probe.
const GPU_TOLERANCE: u64 = 64 << 20;

/// The share of the shared memory that was free before the first probe that must be free again. What the probes left is
/// removed, so the rest is other programs', which a machine may well have.
const SHARED_FREE: f64 = 0.5;

/// What was in use before the first probe.
#[derive(Debug)]
pub(super) struct Idle {
    shared: Option<SharedMemory>,
    reader: Option<GpuReader>,
    gpu: Option<GpuState>,
    patience: Duration,
}

/// Memory that is not free, and who holds it.
struct Held {
    place: String,
    bytes: u64,
    holder: Option<String>,
}

impl Idle {
    /// Reads what is in use now.
    pub(super) fn read(reader: Option<GpuReader>) -> Self {
        let gpu = reader.as_ref().and_then(GpuReader::read);
        Self { shared: SharedMemory::read(), reader, gpu, patience: PATIENCE }
    }

    /// Waits until memory is back; `Break` when the caller does not want to wait any more.
    ///
    /// # Errors
    /// It does not come back.
    pub(super) fn wait(&self, watch: Watch<'_>) -> Result<ControlFlow<()>, ProbeError> {
        let begin = Instant::now();
        while let Some(held) = self.held() {
            if begin.elapsed() >= self.patience {
                let Held { place, bytes, holder } = held;
                return Err(ProbeError::MemoryHeld { place, bytes, holder });
            }
            let progress =
                Progress { elapsed: Duration::ZERO, steps: 0, throughput: None, unit: "samples/s".to_owned() };
            if watch(&progress).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The outcome, unless GPU memory ran out while somebody held a part who was not there before the first probe: then
    /// it says nothing about the config.
    pub(super) fn judge(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::OutOfMemory { memory: Memory::Device, failure } => match self.held_on_gpu() {
                Some(Held { place, bytes, holder: Some(holder) }) => Outcome::Disturbed(Failure {
                    reason: format!(
                        "{}; {holder} has taken {} of {place} meanwhile",
                        failure.reason,
                        show_bytes(bytes)
                    ),
                    ..failure
                }),
                _ => Outcome::OutOfMemory { memory: Memory::Device, failure },
            },
            outcome => outcome,
        }
    }

    fn held(&self) -> Option<Held> {
        self.held_in_shared().or_else(|| self.held_on_gpu())
    }

    fn held_in_shared(&self) -> Option<Held> {
        let (before, now) = (self.shared?, SharedMemory::read()?);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let is_back = now.free_bytes as f64 >= before.free_bytes as f64 * SHARED_FREE;
        (!is_back).then(|| Held {
            place: FOLDER.to_owned(),
            bytes: before.free_bytes.saturating_sub(now.free_bytes),
            holder: largest_in_shared(),
        })
    }

    fn held_on_gpu(&self) -> Option<Held> {
        let before = self.gpu.as_ref()?;
        let now = self.reader.as_ref()?.read()?;
        let used_before = |gpu: &GpuMemory| {
            before.gpus.iter().find(|before| before.uuid == gpu.uuid).map_or(0, |before| before.used_bytes)
        };
        let gpu = now.gpus.iter().find(|gpu| gpu.used_bytes > used_before(gpu) + GPU_TOLERANCE)?;
        let bytes = gpu.used_bytes - used_before(gpu);
        Some(Held { place: format!("GPU {}", gpu.index), bytes, holder: newcomer(before, &now, gpu) })
    }
}

/// The process on a GPU that holds most of those that were not there before.
fn newcomer(before: &GpuState, now: &GpuState, gpu: &GpuMemory) -> Option<String> {
    let was_there = |pid: u32| before.processes.iter().any(|process| process.pid == pid && process.uuid == gpu.uuid);
    let new = now.processes.iter().filter(|process| process.uuid == gpu.uuid && !was_there(process.pid));
    new.max_by_key(|process| process.used_bytes).map(|process| named(process.pid))
}

/// The process that holds most of shared memory.
fn largest_in_shared() -> Option<String> {
    let held = |pid: u32| files_of(&[pid]).values().map(|file| file.bytes).sum::<u64>();
    let (bytes, pid) = all().into_iter().map(|pid| (held(pid), pid)).max()?;
    (bytes > 0).then(|| named(pid))
}

fn named(pid: u32) -> String {
    match command(pid) {
        Some(command) => format!("process {pid} (`{command}`)"),
        None => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    /// A stand-in for `nvidia-smi` that prints the memory in use and the processes that two files hold.
    fn stand_in(folder: &Path) -> GpuReader {
        let program = folder.join("nvidia-smi");
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in\n--query-gpu=*) echo \"0, GPU-a1, $(cat {0}/used), 81559\";;\n*) cat {0}/processes;;\nesac\n",
            folder.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        GpuReader::with(program, None)
    }

    fn say(folder: &Path, used: u32, processes: &str) {
        fs::write(folder.join("used"), used.to_string()).unwrap();
        fs::write(folder.join("processes"), processes).unwrap();
    }

    fn lack() -> Outcome {
        Outcome::OutOfMemory { memory: Memory::Device, failure: Failure::new("CUDA out of memory") }
    }

    #[test]
    fn gpu_memory_is_waited_for_and_its_holder_named() {
        let folder = tempfile::tempdir().unwrap();
        let reader = stand_in(folder.path());
        say(folder.path(), 400, "GPU-a1, 12, 390\n");
        let idle = Idle { patience: Duration::from_millis(200), shared: None, ..Idle::read(Some(reader)) };
        assert!(idle.wait(&mut |_| ControlFlow::Continue(())).unwrap().is_continue());
        say(folder.path(), 460, "GPU-a1, 12, 450\n");
        assert!(idle.wait(&mut |_| ControlFlow::Continue(())).unwrap().is_continue(), "within the tolerance");
        assert_eq!(idle.judge(lack()), lack());

        let own = std::process::id();
        say(folder.path(), 1424, &format!("GPU-a1, 12, 390\nGPU-a1, {own}, 1024\n"));
        let error = idle.wait(&mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(error.starts_with("1.00 GiB more of GPU 0 than before the first probe"), "{error}");
        assert!(error.contains(&format!("process {own} (`")), "{error}");
        assert!(
            matches!(idle.judge(lack()), Outcome::Disturbed(failure) if failure.reason.contains("has taken 1.00 GiB of GPU 0"))
        );
        assert!(idle.wait(&mut |_| ControlFlow::Break(())).unwrap().is_break(), "an interruption is heard");
    }

    #[test]
    fn shared_memory_is_waited_for_and_its_holder_named() {
        let Some(now) = SharedMemory::read() else { return };
        // As if more had been free than there is now.
        let before = SharedMemory { total_bytes: now.total_bytes * 4, free_bytes: now.total_bytes * 4 };
        let patience = Duration::from_millis(100);
        let idle = Idle { shared: Some(before), reader: None, gpu: None, patience };
        let error = idle.wait(&mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(error.contains("more of /dev/shm than before the first probe"), "{error}");
        let idle = Idle { shared: Some(now), reader: None, gpu: None, patience };
        assert!(idle.wait(&mut |_| ControlFlow::Continue(())).unwrap().is_continue());
    }
}
