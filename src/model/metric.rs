//! Metrics that devices report during a probe. Each number has a unit and a source, or is absent.

mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use table::{METRICS, MetricRow, Origin, SOURCES, SourceRow};

/// The numbers of one device over the measured window; numbers that the device did not report are absent.
pub type Readings = BTreeMap<Metric, Reading>;

/// One number and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The number in the metric's [`Unit`].
    pub value: f64,
    /// The source of the number.
    pub source: Source,
}

/// A metric that is read from a device. [`METRICS`] describes its meaning and its common misreadings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Metric {
    /// Share of time in which a multiprocessor had a warp, as the mean over all multiprocessors.
    SmActive,
    /// Warps on the multiprocessors, as a share of the most that they can hold.
    SmOccupancy,
    /// Cycles in which the tensor cores worked.
    TensorActive,
    /// Use of the device memory's bandwidth.
    DramActive,
    /// Time in which at least one kernel ran.
    GpuBusy,
    /// Bytes from the host to the device.
    PcieReceived,
    /// Bytes from the device to the host.
    PcieSent,
    /// Bytes from other GPUs.
    NvlinkReceived,
    /// Bytes to other GPUs.
    NvlinkSent,
    /// The largest amount of device memory that the probe's own processes held.
    MemoryOwn,
    /// The largest amount of device memory that other processes held.
    MemoryOthers,
    /// Mean power.
    Power,
    /// Energy of the window.
    Energy,
    /// Mean clock of the multiprocessors.
    SmClock,
    /// Mean clock of the device memory.
    MemoryClock,
    /// Time in which a power limit lowered the clocks.
    ThrottledByPower,
    /// Time in which heat lowered the clocks.
    ThrottledByHeat,
    /// Memory errors that ECC could not correct.
    EccErrors,
    /// Xid errors that the driver reported.
    XidErrors,
    /// CPU time of the probe's processes, in cores.
    CpuCores,
    /// The largest memory of the probe's processes together; pages that they share count once.
    HostMemory,
    /// Bytes per second that the probe's processes read from storage.
    ReadRate,
    /// Time in which at least one task waited for a CPU.
    CpuPressure,
    /// Time in which at least one task waited for storage.
    IoPressure,
    /// Time in which at least one task waited for memory.
    MemoryPressure,
    /// Share of the control group's CPU quota periods in which the quota throttled the probe.
    CpuThrottled,
}

/// The unit of a metric's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// 0 to 1; shown in percent.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Watts.
    Watts,
    /// Joules.
    Joules,
    /// Megahertz.
    Megahertz,
    /// A count.
    Count,
    /// CPU cores.
    Cores,
}

impl Unit {
    /// Returns the unit of values in JSON, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
            Self::Watts => "W",
            Self::Joules => "J",
            Self::Megahertz => "MHz",
            Self::Count => "count",
            Self::Cores => "cores",
        }
    }
}

/// The source of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// NVML's GPU performance monitoring, from two samples.
    Gpm,
    /// A host engine of DCGM that was running.
    Dcgm,
    /// NVML: counters and states.
    Nvml,
    /// NVML's buffer of samples.
    NvmlSamples,
    /// NVML's list of processes.
    NvmlProcesses,
    /// Memory in use now minus the memory in use before the probe.
    Difference,
    /// The kernel's files of processes and pressure (`/proc`).
    Proc,
    /// The kernel's files of control groups.
    Cgroup,
}

/// The use of one GPU during the measured window of a probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuUse {
    /// Its identity: `GPU-...`, or `MIG-...` for an instance; empty if it could not be queried.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// The numbers that it reported.
    pub readings: Readings,
    /// Codes of the Xid errors, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xids: Vec<u64>,
    /// Why expected numbers are missing, such as `GPM: not supported by this device`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
}

/// One number taken over several GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Together {
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Returns the mean and the spread over the GPUs; `None` if a GPU does not report the metric.
pub(crate) fn together(gpus: &[GpuUse], metric: Metric) -> Option<Together> {
    let told: Option<Vec<f64>> = gpus.iter().map(|gpu| Some(gpu.readings.get(&metric)?.value)).collect();
    let told = told.filter(|told| !told.is_empty())?;
    #[expect(clippy::cast_precision_loss, reason = "a few GPUs")]
    let mean = told.iter().sum::<f64>() / told.len() as f64;
    let least = told.iter().copied().fold(f64::INFINITY, f64::min);
    Some(Together { mean, least, most: told.iter().copied().fold(f64::NEG_INFINITY, f64::max) })
}
