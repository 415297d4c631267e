//! The machine: its GPUs, CPUs and disks, their activity while a probe runs, and their best rates. This module never
//! changes the machine. The only `unsafe` of the library is in `foreign`.
//!
//! Start with [`Machine`], the inventory; [`telemetry`] reads changing values, [`ceilings`] measures the best rates.

mod allocation;
pub mod ceilings;
mod foreign;
mod inventory;
pub(crate) mod process_table;
mod slots;
pub mod telemetry;

pub use allocation::{Allocation, slurm_duration};
pub use ceilings::{Ceiling, Ceilings};
pub(crate) use foreign::namespaces;
pub use inventory::{BUSY, Disk, FORMAT, Hardware, Host, Library, Machine, Processors, RULES, Rule, Warning};
pub use slots::{Shares, SharesError};
pub use telemetry::{
    Device, DeviceChoice, GpuFacts, GpuMemory, GpuMeter, GpuProcess, GpuState, Holder, HostMemory, HostMeter,
    MeterState, Mig, NoGpu, OomKills, Pcie, Power, ProcessorShares, ProcessorTimes, SharedMemory, UNEXPLAINED_BYTES,
    VISIBLE_GPUS,
};
pub use telemetry::{nvml, shared};

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Writes a file, and the folders above it.
    pub(super) fn write(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}
