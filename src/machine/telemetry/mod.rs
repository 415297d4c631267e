//! Reads changing values of the machine: its GPUs, memory and CPUs. A value that cannot be read is absent.

pub(super) mod cgroup;
mod dcgm;
mod device;
mod gpu_facts;
mod host_meter;
pub(super) mod memory;
pub mod nvml;
mod processors;
pub mod shared;
pub(super) mod tool;

pub use dcgm::Dcgm;
pub use device::{Device, DeviceChoice, NoGpu, VISIBLE_GPUS};
pub use gpu_facts::{
    GpuFacts, GpuMemory, GpuProcess, GpuState, Holder, MeterState, Mig, Pcie, Power, RemappedRows, UNEXPLAINED_BYTES,
};
pub use host_meter::HostMeter;
pub use memory::{HostMemory, OomKills, anonymous_memory_of, memory_of, shared_memory_of};
pub use nvml::GpuMeter;
pub use processors::{ProcessorShares, ProcessorTimes, pause_after, thread_time, waited_for_processor};
pub use shared::SharedMemory;
pub(crate) use tool::output_within;
