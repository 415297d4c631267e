//! Metrics that devices report during a probe: meaning, sources and common misreadings. Each number has a unit and a
//! source, or is absent.
//!
//! The GPU descriptions come from the documentation of NVML (`nvml.h`, docs.nvidia.com/deploy/nvml-api) and of DCGM
//! (`dcgm_fields.h`, "Profiling Metrics" in its feature overview). The host descriptions come from proc(5) and the kernel's
//! accounting/psi.rst, admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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

/// A number with its uncertainty, if known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best single number.
    pub value: f64,
    /// Lower end of the 95% interval; absent if the spread is unknown, as after one observation.
    pub low: Option<f64>,
    /// Upper end of the 95% interval; absent together with `low`.
    pub high: Option<f64>,
}

impl Estimate {
    /// Makes an estimate without an interval.
    pub fn point(value: f64) -> Self {
        Self { value, low: None, high: None }
    }

    /// Makes an estimate with a 95% interval.
    pub fn interval(value: f64, low: f64, high: f64) -> Self {
        Self { value, low: Some(low), high: Some(high) }
    }

    /// Returns the estimate of a number that is this many times as large.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let of = |number: f64| number * factor;
        Self { value: of(self.value), low: self.low.map(of), high: self.high.map(of) }
    }

    /// Returns half the width of the interval as a share of the value.
    pub fn relative_half_width(&self) -> Option<f64> {
        Some((self.high? - self.low?) / 2.0 / self.value.abs())
    }
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
    let mean = told.iter().sum::<f64>() / told.len() as f64;
    let least = told.iter().copied().fold(f64::INFINITY, f64::min);
    Some(Together { mean, least, most: told.iter().copied().fold(f64::NEG_INFINITY, f64::max) })
}

/// The full description of a metric.
#[derive(Debug, Clone, Copy)]
pub struct MetricRow {
    /// The metric.
    pub metric: Metric,
    /// Its name in JSON.
    pub name: &'static str,
    /// Its human-readable name.
    pub label: &'static str,
    /// The unit of its value.
    pub unit: Unit,
    /// The sources that can report it, the best first.
    pub sources: &'static [Origin],
    /// Its meaning.
    pub meaning: &'static str,
    /// Its common misreading.
    pub is_not: &'static str,
}

/// A source of a metric, and what the metric needs there.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// The source.
    pub source: Source,
    /// The further needs of this metric, beyond the needs of its source; often empty.
    pub needs: &'static str,
}

/// A source in words.
#[derive(Debug, Clone, Copy)]
pub struct SourceRow {
    /// The source.
    pub source: Source,
    /// Its name in JSON.
    pub name: &'static str,
    /// Its description.
    pub meaning: &'static str,
}

const fn origin(source: Source, needs: &'static str) -> Origin {
    Origin { source, needs }
}

const GPM: Origin = origin(Source::Gpm, "");
const DCGM: Origin = origin(Source::Dcgm, "");
const SAMPLES: Origin = origin(Source::NvmlSamples, "no MIG");
const NVML: Origin = origin(Source::Nvml, "no MIG instance");
const PROCESSES: Origin = origin(Source::NvmlProcesses, "");
const DIFFERENCE: Origin = origin(Source::Difference, "");
const ENERGY: Origin = origin(Source::Nvml, "Volta or later, no MIG");
const EVENTS: Origin = origin(Source::Nvml, "no vGPU");
const ECC: Origin = origin(Source::Nvml, "ECC memory that is on");
const PROC: Origin = origin(Source::Proc, "");
const OWN_IO: Origin = origin(Source::Proc, "processes of the same user");
const CGROUP: Origin = origin(Source::Cgroup, "");

/// Makes [`Metric`] and [`METRICS`] from the same rows.
macro_rules! metrics {
    ($($metric:ident = $name:literal ($label:literal, $unit:ident) from $sources:expr => $meaning:literal, not $is_not:literal;)*) => {
        /// A metric that is read from a device. [`METRICS`] describes its meaning and its common misreadings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Metric {
            $(#[doc = $meaning] #[serde(rename = $name)] $metric,)*
        }

        /// Each metric, in the order of [`Metric`].
        pub const METRICS: &[MetricRow] = &[$(MetricRow {
            metric: Metric::$metric,
            name: $name,
            label: $label,
            unit: Unit::$unit,
            sources: &$sources,
            meaning: $meaning,
            is_not: $is_not,
        }),*];
    };
}

metrics! {
    SmActive = "sm_active" ("SM activity", Share) from [GPM, DCGM] =>
        "Time in which a multiprocessor had a warp, mean over all. NVIDIA's guide: effective use needs 80%.",
        not "Work: a warp that waits for memory counts.";
    SmOccupancy = "sm_occupancy" ("SM occupancy", Share) from [GPM, DCGM] =>
        "Warps on the multiprocessors, of the possible number.",
        not "Speed: kernels with many registers are fast at low occupancy.";
    TensorActive = "tensor_active" ("tensor cores", Share) from [GPM, DCGM] =>
        "Cycles in which the tensor cores worked.",
        not "A share of the data sheet's FLOP/s, which differ by precision.";
    DramActive = "dram_active" ("memory bandwidth", Share) from [GPM, DCGM] =>
        "Cycles in which the device memory moved data. About 80% is the practical maximum.",
        not "Memory in use, or `utilization.memory` of nvidia-smi.";
    GpuBusy = "gpu_busy" ("GPU busy", Share) from [SAMPLES, NVML] =>
        "Time in which at least one kernel of any program ran.",
        not "SM utilisation: a kernel of one thread makes it 100%, as does a waiting collective.";
    PcieReceived = "pcie_received" ("PCIe from the host", BytesPerSecond) from [GPM, DCGM] =>
        "Data over PCIe to the GPU, with the protocol.",
        not "The step's copies alone: kernels that read host memory count.";
    PcieSent = "pcie_sent" ("PCIe to the host", BytesPerSecond) from [GPM, DCGM] =>
        "Data over PCIe from the GPU, with the protocol.",
        not "The step's copies alone.";
    NvlinkReceived = "nvlink_received" ("NVLink received", BytesPerSecond) from [GPM, DCGM] =>
        "Data over all NVLinks to the GPU.",
        not "All data of a collective: some may use PCIe or the network.";
    NvlinkSent = "nvlink_sent" ("NVLink sent", BytesPerSecond) from [GPM, DCGM] =>
        "Data over all NVLinks from the GPU.",
        not "All data of a collective.";
    MemoryOwn = "memory_own" ("memory of the probe", Bytes) from [PROCESSES, DIFFERENCE] =>
        "The most device memory of the probe's processes at a reading, with contexts and libraries.",
        not "The step's peak: it is not seen between readings, and memory that an allocator keeps counts.";
    MemoryOthers = "memory_others" ("memory of others", Bytes) from [PROCESSES, DIFFERENCE] =>
        "The most other device memory in use at a reading, with the driver's.",
        not "A sign of other programs' work.";
    Power = "power" ("power", Watts) from [SAMPLES, NVML] =>
        "Mean power of the board.",
        not "Power of the machine.";
    Energy = "energy" ("energy", Joules) from [ENERGY] =>
        "Energy of the board, from a counter.",
        not "Exact for a short time: the counter needs a few seconds.";
    SmClock = "sm_clock" ("SM clock", Megahertz) from [NVML] =>
        "Mean clock of the multiprocessors.",
        not "Work: an idle GPU may have a high clock.";
    MemoryClock = "memory_clock" ("memory clock", Megahertz) from [NVML] =>
        "Mean clock of the device memory.",
        not "Bandwidth in use.";
    ThrottledByPower = "throttled_by_power" ("held down by power", Share) from [NVML] =>
        "Time in which a power limit lowered the clocks.",
        not "A fault: it is usual at full load.";
    ThrottledByHeat = "throttled_by_heat" ("held down by heat", Share) from [NVML] =>
        "Time in which heat lowered the clocks. From 0.5% on the probe is disturbed.",
        not "The temperature.";
    EccErrors = "ecc_errors" ("ECC errors", Count) from [ECC] =>
        "Memory errors that ECC could not correct.",
        not "Corrected or older errors.";
    XidErrors = "xid_errors" ("Xid errors", Count) from [EVENTS] =>
        "Errors that the driver reported, with their codes.",
        not "Proof of broken hardware: the program may be at fault.";
    CpuCores = "cpu_cores" ("CPU", Cores) from [PROC] =>
        "CPU time of the probe's processes per second: 3.2 is as much as 3.2 busy cores.",
        not "Work: threads that wait by spinning count. A child that its parent never waits for may be missing.";
    HostMemory = "host_memory" ("host memory", Bytes) from [PROC] =>
        "The most memory of the probe's processes at a reading. A page of four processes counts a quarter for each.",
        not "The page cache, or the peak between two readings.";
    ReadRate = "read_rate" ("reads", BytesPerSecond) from [OWN_IO] =>
        "Data from storage for the probe's processes, by reads or mapped files.",
        not "Data from the page cache, user-space file systems, or some network file systems.";
    CpuPressure = "cpu_pressure" ("waits for a processor", Share) from [CGROUP, PROC] =>
        "Time in which at least one task waited for a CPU.",
        not "Lost time: any task counts, with `proc` any program's.";
    IoPressure = "io_pressure" ("waits for storage", Share) from [CGROUP, PROC] =>
        "Time in which at least one task waited for storage.",
        not "Lost time: a loader worker may wait ahead of time.";
    MemoryPressure = "memory_pressure" ("waits for memory", Share) from [CGROUP, PROC] =>
        "Time in which at least one task waited for memory to be freed, swapped in or read again.",
        not "Memory in use.";
    CpuThrottled = "cpu_throttled" ("held back by the CPU quota", Share) from [CGROUP] =>
        "Periods of the CPU quota (usually 100 ms) in which it was used up and some task waited.",
        not "Lost time: a period counts whole. Absent without a quota.";
}

/// Makes [`Source`] and [`SOURCES`] from the same rows.
macro_rules! sources {
    ($($source:ident = $name:literal: $meaning:literal;)*) => {
        /// The source of a number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Source {
            $(#[doc = $meaning] #[serde(rename = $name)] $source,)*
        }

        /// Each source, in the order of [`Source`].
        pub const SOURCES: &[SourceRow] =
            &[$(SourceRow { source: Source::$source, name: $name, meaning: $meaning }),*];
    };
}

sources! {
    Gpm = "gpm": "NVML's GPU performance monitoring: the exact mean. Hopper and later, GeForce from Blackwell on, MIG instances; no vGPU.";
    Dcgm = "dcgm": "A running host engine of [DCGM](#dcgm), read once a second if GPM is missing. Data-centre boards, Volta to Ada.";
    Nvml = "nvml": "NVML's counters, and means of its states.";
    NvmlSamples = "nvml_samples": "The driver's buffer of samples.";
    NvmlProcesses = "nvml_processes": "NVML's list of processes with their memory.";
    Difference = "difference": "If the driver names no processes: the memory in use, minus the memory in use before.";
    Proc = "proc": "`/proc/PID`. Pressure covers the whole machine (`/proc/pressure`, Linux 4.20 or later with `CONFIG_PSI`).";
    Cgroup = "cgroup": "Control groups. Pressure covers the probe's own group (version 2, Linux 4.20 or later, if gputune may make a group). The quota is from gputune's group (version 1 or 2).";
}

impl Metric {
    /// Returns the full description of the metric.
    pub fn row(self) -> &'static MetricRow {
        // The macro keeps both in the same order.
        &METRICS[self as usize]
    }

    /// Returns the unit of its value.
    pub fn unit(self) -> Unit {
        self.row().unit
    }

    /// Returns its human-readable name.
    pub fn label(self) -> &'static str {
        self.row().label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_says_all_that_it_must() {
        for (at, row) in METRICS.iter().enumerate() {
            assert_eq!((row.metric as usize, serde_json::to_value(row.metric).unwrap()), (at, row.name.into()));
            assert!(!row.sources.is_empty(), "{}", row.name);
            assert!(row.meaning.ends_with('.') && row.is_not.ends_with('.') && !row.label.is_empty(), "{}", row.name);
            let sources: Vec<Source> = row.sources.iter().map(|origin| origin.source).collect();
            assert!(sources.windows(2).all(|pair| pair[0] != pair[1]), "{}", row.name);
        }
        for row in SOURCES {
            assert_eq!(serde_json::to_value(row.source).unwrap(), row.name);
            let is_named = METRICS.iter().flat_map(|metric| metric.sources).any(|origin| origin.source == row.source);
            assert!(is_named, "{}", row.name);
        }
    }
}
