//! A table of the metrics: the meaning of each, its sources, and its common misreadings.
//!
//! The GPU descriptions come from the documentation of NVML (`nvml.h`, docs.nvidia.com/deploy/nvml-api) and of DCGM
//! (`dcgm_fields.h`, "Profiling Metrics" in its feature overview). The host descriptions come from proc(5) and the kernel's
//! accounting/psi.rst, admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.

use super::{Metric, Source, Unit};

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
    /// What this metric needs beyond the needs of its source; often empty.
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
const GROUP_PRESSURE: Origin = origin(Source::Cgroup, "");
const MACHINE_PRESSURE: Origin = origin(Source::Proc, "");
const QUOTA: Origin = origin(Source::Cgroup, "");

/// Each metric, in the order of [`Metric`].
pub const METRICS: &[MetricRow] = &[
    MetricRow {
        metric: Metric::SmActive,
        name: "sm_active",
        label: "SM activity",
        unit: Unit::Share,
        sources: &[GPM, DCGM],
        meaning: "Time in which a multiprocessor had a warp, mean over all. NVIDIA's guide: effective use needs 80%.",
        is_not: "Work: a warp that waits for memory counts.",
    },
    MetricRow {
        metric: Metric::SmOccupancy,
        name: "sm_occupancy",
        label: "SM occupancy",
        unit: Unit::Share,
        sources: &[GPM, DCGM],
        meaning: "Warps on the multiprocessors, of the possible number.",
        is_not: "Speed: kernels with many registers are fast at low occupancy.",
    },
    MetricRow {
        metric: Metric::TensorActive,
        name: "tensor_active",
        label: "tensor cores",
        unit: Unit::Share,
        sources: &[GPM, DCGM],
        meaning: "Cycles in which the tensor cores worked.",
        is_not: "A share of the data sheet's FLOP/s, which differ by precision.",
    },
    MetricRow {
        metric: Metric::DramActive,
        name: "dram_active",
        label: "memory bandwidth",
        unit: Unit::Share,
        sources: &[GPM, DCGM],
        meaning: "Cycles in which the device memory moved data. About 80% is the practical maximum.",
        is_not: "Memory in use, or `utilization.memory` of nvidia-smi.",
    },
    MetricRow {
        metric: Metric::GpuBusy,
        name: "gpu_busy",
        label: "GPU busy",
        unit: Unit::Share,
        sources: &[SAMPLES, NVML],
        meaning: "Time in which at least one kernel of any program ran.",
        is_not: "SM utilisation: a kernel of one thread makes it 100%, as does a waiting collective.",
    },
    MetricRow {
        metric: Metric::PcieReceived,
        name: "pcie_received",
        label: "PCIe from the host",
        unit: Unit::BytesPerSecond,
        sources: &[GPM, DCGM],
        meaning: "Data over PCIe to the GPU, with the protocol.",
        is_not: "The step's copies alone: kernels that read host memory count.",
    },
    MetricRow {
        metric: Metric::PcieSent,
        name: "pcie_sent",
        label: "PCIe to the host",
        unit: Unit::BytesPerSecond,
        sources: &[GPM, DCGM],
        meaning: "Data over PCIe from the GPU, with the protocol.",
        is_not: "The step's copies alone.",
    },
    MetricRow {
        metric: Metric::NvlinkReceived,
        name: "nvlink_received",
        label: "NVLink received",
        unit: Unit::BytesPerSecond,
        sources: &[GPM, DCGM],
        meaning: "Data over all NVLinks to the GPU.",
        is_not: "All data of a collective: some may use PCIe or the network.",
    },
    MetricRow {
        metric: Metric::NvlinkSent,
        name: "nvlink_sent",
        label: "NVLink sent",
        unit: Unit::BytesPerSecond,
        sources: &[GPM, DCGM],
        meaning: "Data over all NVLinks from the GPU.",
        is_not: "All data of a collective.",
    },
    MetricRow {
        metric: Metric::MemoryOwn,
        name: "memory_own",
        label: "memory of the probe",
        unit: Unit::Bytes,
        sources: &[PROCESSES, DIFFERENCE],
        meaning: "The most device memory of the probe's processes at a reading, with contexts and libraries.",
        is_not: "The step's peak: it is not seen between readings, and memory that an allocator keeps counts.",
    },
    MetricRow {
        metric: Metric::MemoryOthers,
        name: "memory_others",
        label: "memory of others",
        unit: Unit::Bytes,
        sources: &[PROCESSES, DIFFERENCE],
        meaning: "The most other device memory in use at a reading, with the driver's.",
        is_not: "A sign of other programs' work.",
    },
    MetricRow {
        metric: Metric::Power,
        name: "power",
        label: "power",
        unit: Unit::Watts,
        sources: &[SAMPLES, NVML],
        meaning: "Mean power of the board.",
        is_not: "Power of the machine.",
    },
    MetricRow {
        metric: Metric::Energy,
        name: "energy",
        label: "energy",
        unit: Unit::Joules,
        sources: &[ENERGY],
        meaning: "Energy of the board, from a counter.",
        is_not: "Exact for a short time: the counter needs a few seconds.",
    },
    MetricRow {
        metric: Metric::SmClock,
        name: "sm_clock",
        label: "SM clock",
        unit: Unit::Megahertz,
        sources: &[NVML],
        meaning: "Mean clock of the multiprocessors.",
        is_not: "Work: an idle GPU may have a high clock.",
    },
    MetricRow {
        metric: Metric::MemoryClock,
        name: "memory_clock",
        label: "memory clock",
        unit: Unit::Megahertz,
        sources: &[NVML],
        meaning: "Mean clock of the device memory.",
        is_not: "Bandwidth in use.",
    },
    MetricRow {
        metric: Metric::ThrottledByPower,
        name: "throttled_by_power",
        label: "held down by power",
        unit: Unit::Share,
        sources: &[NVML],
        meaning: "Time in which a power limit lowered the clocks.",
        is_not: "A fault: it is usual at full load.",
    },
    MetricRow {
        metric: Metric::ThrottledByHeat,
        name: "throttled_by_heat",
        label: "held down by heat",
        unit: Unit::Share,
        sources: &[NVML],
        meaning: "Time in which heat lowered the clocks. From 0.5% on the probe is disturbed.",
        is_not: "The temperature.",
    },
    MetricRow {
        metric: Metric::EccErrors,
        name: "ecc_errors",
        label: "ECC errors",
        unit: Unit::Count,
        sources: &[ECC],
        meaning: "Memory errors that ECC could not correct.",
        is_not: "Corrected or older errors.",
    },
    MetricRow {
        metric: Metric::XidErrors,
        name: "xid_errors",
        label: "Xid errors",
        unit: Unit::Count,
        sources: &[EVENTS],
        meaning: "Errors that the driver reported, with their codes.",
        is_not: "Proof of broken hardware: the program may be at fault.",
    },
    MetricRow {
        metric: Metric::CpuCores,
        name: "cpu_cores",
        label: "CPU",
        unit: Unit::Cores,
        sources: &[PROC],
        meaning: "CPU time of the probe's processes per second: 3.2 is as much as 3.2 busy cores.",
        is_not: "Work: threads that wait by spinning count. A child that its parent never waits for may be missing.",
    },
    MetricRow {
        metric: Metric::HostMemory,
        name: "host_memory",
        label: "host memory",
        unit: Unit::Bytes,
        sources: &[PROC],
        meaning: "The most memory of the probe's processes at a reading. A page of four processes counts a quarter for each.",
        is_not: "The page cache, or the peak between two readings.",
    },
    MetricRow {
        metric: Metric::ReadRate,
        name: "read_rate",
        label: "reads",
        unit: Unit::BytesPerSecond,
        sources: &[OWN_IO],
        meaning: "Data from storage for the probe's processes, by reads or mapped files.",
        is_not: "Data from the page cache, user-space file systems, or some network file systems.",
    },
    MetricRow {
        metric: Metric::CpuPressure,
        name: "cpu_pressure",
        label: "waits for a processor",
        unit: Unit::Share,
        sources: &[GROUP_PRESSURE, MACHINE_PRESSURE],
        meaning: "Time in which at least one task waited for a CPU.",
        is_not: "Lost time: any task counts, with `proc` any program's.",
    },
    MetricRow {
        metric: Metric::IoPressure,
        name: "io_pressure",
        label: "waits for storage",
        unit: Unit::Share,
        sources: &[GROUP_PRESSURE, MACHINE_PRESSURE],
        meaning: "Time in which at least one task waited for storage.",
        is_not: "Lost time: a loader worker may wait ahead of time.",
    },
    MetricRow {
        metric: Metric::MemoryPressure,
        name: "memory_pressure",
        label: "waits for memory",
        unit: Unit::Share,
        sources: &[GROUP_PRESSURE, MACHINE_PRESSURE],
        meaning: "Time in which at least one task waited for memory to be freed, swapped in or read again.",
        is_not: "Memory in use.",
    },
    MetricRow {
        metric: Metric::CpuThrottled,
        name: "cpu_throttled",
        label: "held back by the CPU quota",
        unit: Unit::Share,
        sources: &[QUOTA],
        meaning: "Periods of the CPU quota (usually 100 ms) in which it was used up and some task waited.",
        is_not: "Lost time: a period counts whole. Absent without a quota.",
    },
];

/// Each source, in the order of [`Source`].
pub const SOURCES: &[SourceRow] = &[
    SourceRow {
        source: Source::Gpm,
        name: "gpm",
        meaning: "NVML's GPU performance monitoring: the exact mean. Hopper and later, GeForce from Blackwell on, MIG instances; no vGPU.",
    },
    SourceRow {
        source: Source::Dcgm,
        name: "dcgm",
        meaning: "A running host engine of [DCGM](#dcgm), read once a second if GPM is missing. Data-centre boards, Volta to Ada.",
    },
    SourceRow { source: Source::Nvml, name: "nvml", meaning: "NVML's counters, and means of its states." },
    SourceRow { source: Source::NvmlSamples, name: "nvml_samples", meaning: "The driver's buffer of samples." },
    SourceRow {
        source: Source::NvmlProcesses,
        name: "nvml_processes",
        meaning: "NVML's list of processes with their memory.",
    },
    SourceRow {
        source: Source::Difference,
        name: "difference",
        meaning: "If the driver names no processes: the memory in use, minus the memory in use before.",
    },
    SourceRow {
        source: Source::Proc,
        name: "proc",
        meaning: "`/proc/PID`. Pressure covers the whole machine (`/proc/pressure`, Linux 4.20 or later with `CONFIG_PSI`).",
    },
    SourceRow {
        source: Source::Cgroup,
        name: "cgroup",
        meaning: "Control groups. Pressure covers the probe's own group (version 2, Linux 4.20 or later, if gputune may make a group). The quota is from gputune's group (version 1 or 2).",
    },
];

impl Metric {
    /// Returns the full description of the metric.
    pub fn row(self) -> &'static MetricRow {
        // A test checks that the table is in the order of the variants.
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

    /// Returns the names of all variants, as the error for an unknown variant lists them.
    fn variants<T: serde::de::DeserializeOwned>() -> Vec<String> {
        let error = serde_json::from_str::<T>("\"?\"").err().unwrap().to_string();
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn each_metric_and_each_source_has_one_row_in_its_place() {
        let names: Vec<&str> = METRICS.iter().map(|row| row.name).collect();
        assert_eq!(names, variants::<Metric>());
        for (at, row) in METRICS.iter().enumerate() {
            assert_eq!((row.metric as usize, serde_json::to_value(row.metric).unwrap()), (at, row.name.into()));
            assert_eq!(row.metric.row().metric, row.metric);
        }
        assert_eq!(SOURCES.iter().map(|row| row.name).collect::<Vec<_>>(), variants::<Source>());
        for row in SOURCES {
            assert_eq!(serde_json::to_value(row.source).unwrap(), row.name);
        }
    }

    #[test]
    fn each_row_says_all_that_it_must() {
        for row in METRICS {
            assert!(!row.sources.is_empty(), "{}", row.name);
            assert!(row.meaning.ends_with('.') && row.is_not.ends_with('.') && !row.label.is_empty(), "{}", row.name);
            let sources: Vec<Source> = row.sources.iter().map(|origin| origin.source).collect();
            assert!(sources.windows(2).all(|pair| pair[0] != pair[1]), "{}", row.name);
        }
        let named: Vec<Source> = METRICS.iter().flat_map(|row| row.sources).map(|origin| origin.source).collect();
        let unnamed: Vec<&str> =
            SOURCES.iter().filter(|row| !named.contains(&row.source)).map(|row| row.name).collect();
        assert!(unnamed.is_empty(), "{unnamed:?}");
    }
}
