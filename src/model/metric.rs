//! What devices tell of themselves during a probe: each number with its unit and its source, or not at all.

mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use table::{METRICS, MetricRow, Origin, SOURCES, SourceRow};

/// Numbers of one device over the measured window; what the device did not tell is not in it.
pub type Readings = BTreeMap<Metric, Reading>;

/// One number and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// In the metric's [`Unit`].
    pub value: f64,
    /// Who told it.
    pub source: Source,
}

/// What is read. [`METRICS`] says of each what it means and what it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Metric {
    /// Time in which a multiprocessor had a warp, mean over all of them.
    SmActive,
    /// Warps on the multiprocessors, of those that they could hold.
    SmOccupancy,
    /// Cycles in which the tensor cores worked.
    TensorActive,
    /// Use of the device memory's bandwidth.
    DramActive,
    /// Time in which some kernel ran.
    GpuBusy,
    /// From the host to the device.
    PcieReceived,
    /// From the device to the host.
    PcieSent,
    /// From other GPUs.
    NvlinkReceived,
    /// To other GPUs.
    NvlinkSent,
    /// Largest device memory of the probe's own processes.
    MemoryOwn,
    /// Largest device memory that others held.
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
    /// Processor time of the probe's processes, in cores.
    CpuCores,
    /// Largest memory of the probe's processes, shared pages once.
    HostMemory,
    /// Bytes per second that the probe's processes read from storage.
    ReadRate,
    /// Time in which some task waited for a processor.
    CpuPressure,
    /// Time in which some task waited for storage.
    IoPressure,
    /// Time in which some task waited for memory.
    MemoryPressure,
    /// Periods of the control group's processor quota in which it held the probe back.
    CpuThrottled,
}

/// What a metric's value is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// 0 to 1; shown in per cent.
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
    /// How many.
    Count,
    /// Processor cores.
    Cores,
}

impl Unit {
    /// How values in JSON are counted, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Share => "share, 0 to 1",
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

/// Who told a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// NVML's GPU performance monitoring, two samples.
    Gpm,
    /// A host engine of DCGM that was running.
    Dcgm,
    /// NVML: counters and states.
    Nvml,
    /// NVML's buffer of samples.
    NvmlSamples,
    /// NVML's list of processes.
    NvmlProcesses,
    /// What is in use more than before the probe.
    Difference,
    /// The kernel's files of processes and pressure.
    Proc,
    /// The kernel's files of control groups.
    Cgroup,
}

/// What one GPU did during the measured window of a probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuUse {
    /// Its identity: `GPU-...`, or `MIG-...` for an instance; empty where none could be asked.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// What it told.
    pub readings: Readings,
    /// Codes of the Xid errors, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xids: Vec<u64>,
    /// Why numbers that one would expect are not there, such as `GPM: not supported by this device`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
}

/// A number of several GPUs together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Together {
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// The mean and the spread over the GPUs; absent where one does not tell.
pub(crate) fn together(gpus: &[GpuUse], metric: Metric) -> Option<Together> {
    let told: Option<Vec<f64>> = gpus.iter().map(|gpu| Some(gpu.readings.get(&metric)?.value)).collect();
    let told = told.filter(|told| !told.is_empty())?;
    #[expect(clippy::cast_precision_loss, reason = "a few GPUs")]
    let mean = told.iter().sum::<f64>() / told.len() as f64;
    let least = told.iter().copied().fold(f64::INFINITY, f64::min);
    Some(Together { mean, least, most: told.iter().copied().fold(f64::NEG_INFINITY, f64::max) })
}
