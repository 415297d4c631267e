//! The memory of GPUs at some moment, and the processes that hold it.

/// The memory that may be in use on a GPU without a process that explains it. A driver keeps a little for each process, and
/// returns it with a delay. A round number.
pub const UNEXPLAINED_BYTES: u64 = 64 << 20;

/// The memory of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuMemory {
    /// Its name in a message, such as `GPU 0`.
    pub place: String,
    /// Its identity, such as `GPU-5ce9b4ab-...`.
    pub uuid: String,
    /// Memory in use by any process, in bytes.
    pub used_bytes: u64,
    /// Total memory, in bytes.
    pub total_bytes: u64,
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProcess {
    /// The identity of the GPU.
    pub uuid: String,
    /// The process id; in a container it may be the number outside.
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
