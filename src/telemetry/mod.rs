//! What the machine is and how its memory and its processors fare; read only, every field optional.

mod cgroup;
mod device;
mod gpu_memory;
mod host;
mod kills;
pub mod nvml;
mod processors;
pub mod shared;
mod tree;

pub use device::Device;
pub use gpu_memory::{GpuMemory, GpuProcess, GpuState, UNEXPLAINED_BYTES};
pub use host::HostMemory;
pub use kills::OomKills;
pub use nvml::GpuMeter;
pub use processors::{ProcessorShares, ProcessorTimes};
pub use shared::SharedMemory;
pub use tree::memory_of;
