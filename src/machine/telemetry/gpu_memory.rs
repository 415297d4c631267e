//! What GPUs hold at some moment, and who holds it.

/// Memory that may be in use on a GPU without a process that explains it: a driver keeps a little for each, and gives it
/// back a little later.
pub const UNEXPLAINED_BYTES: u64 = 64 << 20;

/// The memory of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuMemory {
    /// What it is called in a message, such as `GPU 0`.
    pub place: String,
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

impl GpuState {
    /// What is in use of a GPU, where it is known.
    pub fn used_of(&self, uuid: &str) -> Option<u64> {
        self.gpus.iter().find(|gpu| gpu.uuid == uuid).map(|gpu| gpu.used_bytes)
    }

    /// Whether a process computes on a GPU.
    pub fn has(&self, pid: u32, uuid: &str) -> bool {
        self.processes.iter().any(|process| process.pid == pid && process.uuid == uuid)
    }
}
