//! Facts about a GPU besides its activity: model, links, limits, memory, and processes on it.

use serde::{Serialize, Serializer};

/// One GPU, or one MIG instance. Facts that the driver does not report are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuFacts {
    /// The number in the order of the PCI bus; an instance has the number of its whole GPU.
    pub index: Option<u32>,
    /// The UUID: `GPU-...`, or `MIG-...` for an instance.
    pub uuid: Option<String>,
    /// The model.
    pub name: String,
    /// True if `CUDA_VISIBLE_DEVICES` shows it to programs.
    pub is_visible: bool,
    /// Compute capability, such as 9.0.
    #[serde(serialize_with = "as_version")]
    pub compute_capability: Option<(i32, i32)>,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory in use by any process, in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Its link to the host.
    pub pcie: Option<Pcie>,
    /// NVLinks that are up.
    pub nvlinks: Option<u32>,
    /// Its power and power limits.
    pub power: Option<Power>,
    /// Its division into instances.
    pub mig: Option<Mig>,
    /// True if the driver stays loaded while no process uses the GPU.
    pub persistence: Option<bool>,
    /// Share of the last sample period in which a kernel ran, from 0 to 1.
    pub busy: Option<f64>,
    /// The rows of memory that failed.
    pub remapped_rows: Option<RemappedRows>,
    /// The processes that compute on it; `None` if the driver does not report them.
    pub processes: Option<Vec<Holder>>,
    /// The sources of numbers that are read while a probe runs.
    pub meters: Vec<MeterState>,
}

impl GpuFacts {
    /// Returns the name of the GPU or instance in a sentence: `GPU 0`, or `instance MIG-...`.
    pub fn place(&self) -> String {
        match (&self.mig, &self.uuid, self.index) {
            (Some(Mig::InstanceOf(_)), Some(uuid), _) => format!("instance {uuid}"),
            (_, _, Some(index)) => format!("GPU {index}"),
            (_, Some(uuid), None) => uuid.clone(),
            (_, None, None) => "a GPU".to_owned(),
        }
    }
}

/// A GPU's link to the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pcie {
    /// Generation now; an idle link slows down to save power.
    pub generation: Option<u32>,
    /// Lanes now.
    pub width: Option<u32>,
    /// The fastest generation of GPU and slot.
    pub max_generation: Option<u32>,
    /// The most lanes of GPU and slot.
    pub max_width: Option<u32>,
}

/// A GPU's power, in watts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Power {
    /// The power that it draws now.
    pub now_watts: Option<f64>,
    /// The power limit.
    pub limit_watts: Option<f64>,
    /// The default power limit.
    pub default_limit_watts: Option<f64>,
}

/// The division of a GPU into instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mig {
    /// The GPU can be divided, but is not.
    Off,
    /// The GPU is divided, but has no instance that can compute.
    WithoutInstances,
    /// This is an instance of the GPU with this UUID.
    InstanceOf(String),
}

/// Rows of device memory that failed (NVIDIA, "GPU memory error management", row remapping).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RemappedRows {
    /// True if some rows wait for a restart of the GPU to be replaced.
    pub is_pending: bool,
    /// True if some rows cannot be replaced.
    pub has_failed: bool,
}

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its process id; in a container, the driver may report the number outside the container.
    pub pid: u32,
    /// Its program, if visible.
    pub name: Option<String>,
    /// The memory that it holds, in bytes, if the driver reports it.
    pub memory_bytes: Option<u64>,
}

/// The state of a source of numbers on this GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MeterState {
    /// Its name, such as `GPM`.
    pub name: &'static str,
    /// Why it does not work; `None` if it works.
    pub absent: Option<String>,
}

fn as_version<S: Serializer>(version: &Option<(i32, i32)>, serializer: S) -> Result<S::Ok, S::Error> {
    version.map(|(major, minor)| format!("{major}.{minor}")).serialize(serializer)
}

/// Memory in use that no process explains matters only above this size, because a driver keeps a little for each
/// process and returns it with a delay. A round number.
pub const UNEXPLAINED_BYTES: u64 = 64 << 20;

/// The memory of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuMemory {
    /// Its name in a message, such as `GPU 0`.
    pub place: String,
    /// The UUID, such as `GPU-5ce9b4ab-...`.
    pub uuid: String,
    /// Memory in use by any process, in bytes.
    pub used_bytes: u64,
    /// Total memory, in bytes.
    pub total_bytes: u64,
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProcess {
    /// The UUID of the GPU.
    pub uuid: String,
    /// The process id; in a container, the driver may report the number outside the container.
    pub pid: u32,
    /// The memory that it holds, in bytes, if the driver reports it.
    pub used_bytes: Option<u64>,
}

/// The memory of the GPUs at some moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuState {
    /// The GPUs that may be used.
    pub gpus: Vec<GpuMemory>,
    /// The processes that compute on them.
    pub processes: Vec<GpuProcess>,
}

impl GpuState {
    /// Returns the memory in use on a GPU, if it is known.
    pub fn used_of(&self, uuid: &str) -> Option<u64> {
        self.gpus.iter().find(|gpu| gpu.uuid == uuid).map(|gpu| gpu.used_bytes)
    }

    /// Returns true if a process computes on a GPU.
    pub fn has(&self, pid: u32, uuid: &str) -> bool {
        self.processes.iter().any(|process| process.pid == pid && process.uuid == uuid)
    }
}
