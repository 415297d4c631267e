//! Structures of nvml.h that the stand-in fills.

#[repr(C)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

#[repr(C)]
pub(crate) struct MemoryV2 {
    pub(crate) version: u32,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

#[repr(C)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) used: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}

#[repr(C)]
pub(crate) struct Pci {
    pub(crate) legacy: [u8; 16],
    pub(crate) domain: u32,
    pub(crate) bus: u32,
    pub(crate) device: u32,
    pub(crate) ids: [u32; 2],
    pub(crate) bus_id: [u8; 32],
}

#[repr(C)]
pub(crate) struct Sample {
    pub(crate) time: u64,
    pub(crate) value: u64,
}

#[repr(C)]
pub(crate) struct ProcessShare {
    pub(crate) pid: u32,
    pub(crate) time: u64,
    pub(crate) shares: [u32; 4],
}

#[repr(C)]
pub(crate) struct Field {
    pub(crate) id: u32,
    pub(crate) scope: u32,
    pub(crate) time: i64,
    pub(crate) latency: i64,
    pub(crate) kind: u32,
    pub(crate) result: u32,
    pub(crate) value: u64,
}

#[repr(C)]
pub(crate) struct Violation {
    pub(crate) reference: u64,
    pub(crate) time: u64,
}

#[repr(C)]
pub(crate) struct Shares {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
}

#[repr(C)]
pub(crate) struct EventData {
    pub(crate) device: usize,
    pub(crate) kind: u64,
    pub(crate) data: u64,
    pub(crate) instances: [u32; 2],
}

#[repr(C)]
pub(crate) struct GpmMetric {
    pub(crate) id: u32,
    pub(crate) result: u32,
    pub(crate) value: f64,
    pub(crate) names: [usize; 3],
}

/// The metrics follow, as many as `count` says.
#[repr(C)]
pub(crate) struct GpmMetrics {
    pub(crate) version: u32,
    pub(crate) count: u32,
    pub(crate) first: *mut GpmSample,
    pub(crate) last: *mut GpmSample,
    pub(crate) metrics: [GpmMetric; 0],
}

pub(crate) struct GpmSample {
    pub(crate) gpu: usize,
    pub(crate) time: f64,
}
