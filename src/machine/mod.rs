//! Describes the machine: which GPUs, processors and disks it has, what they do right now, and how fast they can be. It
//! never changes anything. The only `unsafe` of the library is in `foreign`.
//!
//! Start with [`Machine`], which describes the machine once; [`telemetry`] reads changing values.

pub mod ceilings;
mod foreign;
mod inventory;
pub(crate) mod process_table;
pub mod telemetry;

pub use ceilings::{Ceiling, Ceilings};
#[cfg(feature = "cuda")]
pub(crate) use foreign::cuda;
pub(crate) use foreign::namespaces;
pub use inventory::{BUSY, Disk, FORMAT, Hardware, Host, Library, Machine, Processors, RULES, Rule, Warning};
pub use telemetry::{
    Device, DeviceChoice, GpuFacts, GpuMemory, GpuMeter, GpuProcess, GpuState, Holder, HostMemory, HostMeter,
    MeterState, Mig, NoGpu, OomKills, Pcie, Power, ProcessorShares, ProcessorTimes, SharedMemory, UNEXPLAINED_BYTES,
    VISIBLE_GPUS,
};
pub use telemetry::{nvml, shared};
