//! GPU memory, and who holds it, as `nvidia-smi` tells.
//!
//! The program comes with the driver. What is read here has not run on a GPU yet; the tests use a stand-in for the
//! program that prints in the form that its documentation gives.

use std::path::PathBuf;
use std::time::Duration;

use super::tool;

const MIB: u64 = 1 << 20;

/// The memory of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuMemory {
    /// Its number, in the order of the PCI bus.
    pub index: u32,
    /// Its identity, such as `GPU-5ce9b4ab-...`.
    pub uuid: String,
    /// In use by anybody, in bytes.
    pub used_bytes: u64,
    /// All of it, in bytes.
    pub total_bytes: u64,
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProcess {
    /// Which GPU.
    pub uuid: String,
    /// Which process; in a container it may be a number outside.
    pub pid: u32,
    /// What it holds, in bytes, where the driver tells.
    pub used_bytes: Option<u64>,
}

/// What the GPUs hold at some moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuState {
    /// The GPUs that may be used.
    pub gpus: Vec<GpuMemory>,
    /// Who computes on them.
    pub processes: Vec<GpuProcess>,
}

/// What can be asked about GPU memory.
#[derive(Debug, Clone)]
pub struct GpuReader {
    program: PathBuf,
    /// `CUDA_VISIBLE_DEVICES`, where it is set.
    visible: Option<String>,
}

impl GpuReader {
    /// Finds `nvidia-smi` in `PATH`. `visible` is the value of `CUDA_VISIBLE_DEVICES`: other GPUs are left out.
    pub fn find(visible: Option<String>) -> Option<Self> {
        Some(Self::with(tool::find("nvidia-smi")?, visible))
    }

    /// Asks a certain program.
    pub fn with(program: impl Into<PathBuf>, visible: Option<String>) -> Self {
        Self { program: program.into(), visible }
    }

    /// Reads it now; `None` where the program fails.
    pub fn read(&self) -> Option<GpuState> {
        let gpus = self.query("--query-gpu=index,uuid,memory.used,memory.total")?;
        let gpus: Vec<GpuMemory> = gpus.lines().filter_map(gpu).filter(|gpu| self.is_visible(gpu)).collect();
        let processes = self.query("--query-compute-apps=gpu_uuid,pid,used_memory")?;
        let mut processes: Vec<GpuProcess> = processes.lines().filter_map(process).collect();
        processes.retain(|process| gpus.iter().any(|gpu| gpu.uuid == process.uuid));
        Some(GpuState { gpus, processes })
    }

    /// `CUDA_VISIBLE_DEVICES` holds numbers or the beginnings of identities, and ends at the first that is neither (CUDA
    /// C++ Programming Guide, "CUDA Environment Variables"). Its numbers are those of the PCI bus where all GPUs are
    /// alike or `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    fn is_visible(&self, gpu: &GpuMemory) -> bool {
        let Some(visible) = &self.visible else { return true };
        let names = visible.split(',').map(str::trim);
        let mut valid = names.take_while(|name| name.parse::<u32>().is_ok() || name.starts_with("GPU-"));
        valid.any(|name| name.parse() == Ok(gpu.index) || gpu.uuid.starts_with(name))
    }

    fn query(&self, what: &str) -> Option<String> {
        tool::output_within(
            &self.program,
            &[what.as_ref(), "--format=csv,noheader,nounits".as_ref()],
            Duration::from_secs(10),
        )
    }
}

/// A line like `0, GPU-5ce9b4ab, 512, 81559`, in MiB.
fn gpu(line: &str) -> Option<GpuMemory> {
    let mut fields = line.split(',').map(str::trim);
    Some(GpuMemory {
        index: fields.next()?.parse().ok()?,
        uuid: fields.next()?.to_owned(),
        used_bytes: fields.next()?.parse::<u64>().ok()? * MIB,
        total_bytes: fields.next()?.parse::<u64>().ok()? * MIB,
    })
}

/// A line like `GPU-5ce9b4ab, 4711, 498`, in MiB, or with `[N/A]` for the memory.
fn process(line: &str) -> Option<GpuProcess> {
    let mut fields = line.split(',').map(str::trim);
    let (uuid, pid) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
    let used_bytes = fields.next()?.parse::<u64>().ok().map(|size| size * MIB);
    Some(GpuProcess { uuid, pid, used_bytes })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    /// A stand-in for `nvidia-smi`.
    fn stand_in(folder: &Path) -> PathBuf {
        let program = folder.join("nvidia-smi");
        let script = "#!/bin/sh\ncase \"$1\" in\n--query-gpu=*) printf '0, GPU-a1, 512, 81559\\n1, GPU-b2, 3, 81559\\n';;\n\
                      *) printf 'GPU-a1, 4711, 498\\nGPU-b2, 12, [N/A]\\n';;\nesac\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    fn gpus_that_may_be_used_are_read_with_their_processes() {
        let folder = tempfile::tempdir().unwrap();
        let program = stand_in(folder.path());
        let of = |visible: Option<&str>| GpuReader::with(&program, visible.map(str::to_owned)).read().unwrap();
        let all = of(None);
        assert_eq!(all.gpus.iter().map(|gpu| gpu.used_bytes / MIB).collect::<Vec<_>>(), [512, 3]);
        assert_eq!(all.processes[0], GpuProcess { uuid: "GPU-a1".to_owned(), pid: 4711, used_bytes: Some(498 * MIB) });
        assert_eq!(all.processes[1].used_bytes, None);
        for (visible, index) in [("1", 1), ("GPU-b", 1), (" 0 ,-1,1", 0)] {
            let state = of(Some(visible));
            assert_eq!(state.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [index], "{visible}");
            assert_eq!(state.processes.len(), 1);
        }
        assert_eq!(of(Some("")), GpuState::default());
    }

    #[test]
    fn a_program_that_fails_tells_nothing() {
        assert!(GpuReader::with("/no/such/program", None).read().is_none());
        assert!(GpuReader::with("/bin/false", None).read().is_none());
    }
}
