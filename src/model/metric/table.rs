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

/// A source of a metric, and where that source is available.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// The source.
    pub source: Source,
    /// The devices that support it.
    pub architectures: &'static str,
    /// The privileges that the user needs.
    pub privileges: &'static str,
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

const fn origin(source: Source, architectures: &'static str, privileges: &'static str) -> Origin {
    Origin { source, architectures, privileges }
}

const GPM: Origin = origin(Source::Gpm, "Hopper and later, GeForce from Blackwell on; MIG instances; no vGPU", "none");
const DCGM: Origin = origin(
    Source::Dcgm,
    "data-centre boards, Volta to Ada",
    "none; a host engine must already run, which needs root itself",
);
const SAMPLES: Origin = origin(Source::NvmlSamples, "all; no MIG instances", "none");
const NVML: Origin = origin(Source::Nvml, "all; no MIG instances", "none");
const PROCESSES: Origin = origin(
    Source::NvmlProcesses,
    "all; where the driver tells the memory of each process",
    "none; in a container its own processes must be told from others",
);
const DIFFERENCE: Origin = origin(Source::Difference, "all", "none");
const ENERGY: Origin = origin(Source::Nvml, "Volta and later; no MIG instances", "none");
const EVENTS: Origin = origin(Source::Nvml, "all; no vGPU", "none");
const ECC: Origin = origin(Source::Nvml, "boards with ECC memory, while it is on", "none");
const PROC: Origin = origin(Source::Proc, "Linux", "none");
const OWN_IO: Origin = origin(Source::Proc, "Linux", "processes of the same user (`/proc/PID/io`)");
const GROUP_PRESSURE: Origin = origin(
    Source::Cgroup,
    "Linux 4.20 or later, control groups of version 2",
    "gputune may make a control group below its own",
);
const MACHINE_PRESSURE: Origin =
    origin(Source::Proc, "Linux 4.20 or later, with `CONFIG_PSI`", "none; it is the whole machine's then");
const QUOTA: Origin = origin(Source::Cgroup, "Linux, a group with a processor quota, version 1 or 2", "none");

/// Each metric, in the order of [`Metric`].
pub const METRICS: &[MetricRow] = &[
    MetricRow {
        metric: Metric::SmActive,
        name: "sm_active",
        label: "SM activity",
        unit: Unit::Share,
        sources: &[GPM, DCGM],
        meaning: "Time in which a multiprocessor had at least one warp, mean over all multiprocessors. NVIDIA takes 80 % as needed for effective use, though not enough for it, and below 50 % as probably ineffective.",
        is_not: "How much the multiprocessors compute: a warp that waits for memory counts.",
    },
    MetricRow {
        metric: Metric::SmOccupancy,
        name: "sm_occupancy",
        label: "SM occupancy",
        unit: Unit::Share,
        sources: &[GPM, DCGM],
        meaning: "Warps that were on the multiprocessors, of those that they could hold.",
        is_not: "Speed: kernels that keep much in registers are fast at low occupancy.",
    },
    MetricRow {
        metric: Metric::TensorActive,
        name: "tensor_active",
        label: "tensor cores",
        unit: Unit::Share,
        sources: &[GPM, DCGM],
        meaning: "Cycles in which the tensor cores worked. Near zero means that no matrix multiplication runs on them.",
        is_not: "A share of the FLOP/s that the data sheet gives: each precision has its own.",
    },
    MetricRow {
        metric: Metric::DramActive,
        name: "dram_active",
        label: "memory bandwidth",
        unit: Unit::Share,
        sources: &[GPM, DCGM],
        meaning: "Cycles in which the interface of the device memory moved data. About 80 % is as much as there is in practice.",
        is_not: "Memory in use, nor `utilization.memory` of nvidia-smi, which is a share of time.",
    },
    MetricRow {
        metric: Metric::GpuBusy,
        name: "gpu_busy",
        label: "GPU busy",
        unit: Unit::Share,
        sources: &[SAMPLES, NVML],
        meaning: "Time in which at least one kernel ran, by anybody.",
        is_not: "SM utilisation: a kernel of one thread makes it 100 %, and so does a collective that waits for another rank.",
    },
    MetricRow {
        metric: Metric::PcieReceived,
        name: "pcie_received",
        label: "PCIe from the host",
        unit: Unit::BytesPerSecond,
        sources: &[GPM, DCGM],
        meaning: "What came over PCIe to the GPU, protocol included.",
        is_not: "The copies of the step alone: kernels that read host memory count as well.",
    },
    MetricRow {
        metric: Metric::PcieSent,
        name: "pcie_sent",
        label: "PCIe to the host",
        unit: Unit::BytesPerSecond,
        sources: &[GPM, DCGM],
        meaning: "What the GPU sent over PCIe, protocol included.",
        is_not: "The copies of the step alone.",
    },
    MetricRow {
        metric: Metric::NvlinkReceived,
        name: "nvlink_received",
        label: "NVLink received",
        unit: Unit::BytesPerSecond,
        sources: &[GPM, DCGM],
        meaning: "What came over all NVLinks of the GPU.",
        is_not: "What a collective moved in all: the part over PCIe or the network is not in it.",
    },
    MetricRow {
        metric: Metric::NvlinkSent,
        name: "nvlink_sent",
        label: "NVLink sent",
        unit: Unit::BytesPerSecond,
        sources: &[GPM, DCGM],
        meaning: "What the GPU sent over all its NVLinks.",
        is_not: "What a collective moved in all.",
    },
    MetricRow {
        metric: Metric::MemoryOwn,
        name: "memory_own",
        label: "memory of the probe",
        unit: Unit::Bytes,
        sources: &[PROCESSES, DIFFERENCE],
        meaning: "The most device memory that the probe's own processes held at a look, contexts and libraries included.",
        is_not: "The peak of what the step needed: what is taken and given back between two looks is not seen, and what an allocator keeps for later is.",
    },
    MetricRow {
        metric: Metric::MemoryOthers,
        name: "memory_others",
        label: "memory of others",
        unit: Unit::Bytes,
        sources: &[PROCESSES, DIFFERENCE],
        meaning: "The most device memory that was in use beside it at a look, the driver's included.",
        is_not: "A sign that others computed.",
    },
    MetricRow {
        metric: Metric::Power,
        name: "power",
        label: "power",
        unit: Unit::Watts,
        sources: &[SAMPLES, NVML],
        meaning: "Mean power of the board.",
        is_not: "Power of the machine: processor, memory and fans are not in it.",
    },
    MetricRow {
        metric: Metric::Energy,
        name: "energy",
        label: "energy",
        unit: Unit::Joules,
        sources: &[ENERGY],
        meaning: "Energy of the board over the measured part, from a counter.",
        is_not: "Exact for a short time: the counter moves in steps, so a few seconds are needed.",
    },
    MetricRow {
        metric: Metric::SmClock,
        name: "sm_clock",
        label: "SM clock",
        unit: Unit::Megahertz,
        sources: &[NVML],
        meaning: "Mean clock of the multiprocessors over the looks.",
        is_not: "Work: an idle GPU may have a high clock.",
    },
    MetricRow {
        metric: Metric::MemoryClock,
        name: "memory_clock",
        label: "memory clock",
        unit: Unit::Megahertz,
        sources: &[NVML],
        meaning: "Mean clock of the device memory over the looks.",
        is_not: "Bandwidth in use.",
    },
    MetricRow {
        metric: Metric::ThrottledByPower,
        name: "throttled_by_power",
        label: "held down by power",
        unit: Unit::Share,
        sources: &[NVML],
        meaning: "Time in which a limit on power kept the clocks lower than they would have been.",
        is_not: "A fault: a GPU at full load usually works at its power limit.",
    },
    MetricRow {
        metric: Metric::ThrottledByHeat,
        name: "throttled_by_heat",
        label: "held down by heat",
        unit: Unit::Share,
        sources: &[NVML],
        meaning: "Time in which heat kept the clocks lower than they would have been. From half a percent on the probe is disturbed.",
        is_not: "The temperature.",
    },
    MetricRow {
        metric: Metric::EccErrors,
        name: "ecc_errors",
        label: "ECC errors",
        unit: Unit::Count,
        sources: &[ECC],
        meaning: "Memory errors during the probe that ECC could not correct.",
        is_not: "Errors that were corrected, nor those of before.",
    },
    MetricRow {
        metric: Metric::XidErrors,
        name: "xid_errors",
        label: "Xid errors",
        unit: Unit::Count,
        sources: &[EVENTS],
        meaning: "Errors that the driver reported during the probe; their codes are beside it.",
        is_not: "A sign of broken hardware by itself: many codes are the program's own faults.",
    },
    MetricRow {
        metric: Metric::CpuCores,
        name: "cpu_cores",
        label: "CPU",
        unit: Unit::Cores,
        sources: &[PROC],
        meaning: "Processor time of all processes of the probe each second, those that ended meanwhile included. 3.2 is as much as 3.2 cores that are always busy.",
        is_not: "Work: threads that wait by spinning count. What a child used that its parent never waits for may be missing.",
    },
    MetricRow {
        metric: Metric::HostMemory,
        name: "host_memory",
        label: "host memory",
        unit: Unit::Bytes,
        sources: &[PROC],
        meaning: "The most memory that the probe's processes held together at a look; a page that four share counts a quarter for each.",
        is_not: "Memory of files that the kernel keeps, which it can drop; nor the peak between two looks.",
    },
    MetricRow {
        metric: Metric::ReadRate,
        name: "read_rate",
        label: "reads",
        unit: Unit::BytesPerSecond,
        sources: &[OWN_IO],
        meaning: "What the probe's processes made the kernel fetch from storage each second, by reading or through mapped files, those that ended meanwhile included.",
        is_not: "What they read: what was in the page cache is not in it. Nor is what file systems in user space or over some networks fetch, since the kernel does not count it.",
    },
    MetricRow {
        metric: Metric::CpuPressure,
        name: "cpu_pressure",
        label: "waits for a processor",
        unit: Unit::Share,
        sources: &[GROUP_PRESSURE, MACHINE_PRESSURE],
        meaning: "Time in which at least one task could have run and had to wait for a processor.",
        is_not: "Lost time of the step: the task may have been any. By `proc` it may be another program's.",
    },
    MetricRow {
        metric: Metric::IoPressure,
        name: "io_pressure",
        label: "waits for storage",
        unit: Unit::Share,
        sources: &[GROUP_PRESSURE, MACHINE_PRESSURE],
        meaning: "Time in which at least one task waited for storage.",
        is_not: "Lost time of the step: a data worker that waits ahead of time costs nothing. By `proc` it may be another program's.",
    },
    MetricRow {
        metric: Metric::MemoryPressure,
        name: "memory_pressure",
        label: "waits for memory",
        unit: Unit::Share,
        sources: &[GROUP_PRESSURE, MACHINE_PRESSURE],
        meaning: "Time in which at least one task waited for memory to be freed, swapped in or read again.",
        is_not: "Memory in use. By `proc` it may be another program's.",
    },
    MetricRow {
        metric: Metric::CpuThrottled,
        name: "cpu_throttled",
        label: "held back by the CPU quota",
        unit: Unit::Share,
        sources: &[QUOTA],
        meaning: "The quota's periods (100 ms each, usually) in which it was used up and some task had to wait, of those in which the group ran.",
        is_not: "Lost time: a period counts whole however late the quota was used up. Without a quota it is absent.",
    },
];

/// Each source, in the order of [`Source`].
pub const SOURCES: &[SourceRow] = &[
    SourceRow {
        source: Source::Gpm,
        name: "gpm",
        meaning: "NVML's GPU performance monitoring: the difference of two samples, which is the exact mean between them. Whether a GPU has it is tried, not looked up.",
    },
    SourceRow {
        source: Source::Dcgm,
        name: "dcgm",
        meaning: "A host engine of DCGM that was running already, asked through `dcgmi` once a second where there is no GPM: the mean of its rows. See [below](#dcgm).",
    },
    SourceRow {
        source: Source::Nvml,
        name: "nvml",
        meaning: "NVML: counters, and states that were looked at several times.",
    },
    SourceRow {
        source: Source::NvmlSamples,
        name: "nvml_samples",
        meaning: "The buffer of samples that the driver keeps, emptied now and then, so that none is missed.",
    },
    SourceRow {
        source: Source::NvmlProcesses,
        name: "nvml_processes",
        meaning: "NVML's list of processes with the memory of each.",
    },
    SourceRow {
        source: Source::Difference,
        name: "difference",
        meaning: "If the driver names no processes: the memory in use, minus the memory in use before the probe.",
    },
    SourceRow {
        source: Source::Proc,
        name: "proc",
        meaning: "The kernel's files of processes (`/proc/PID`), and of the whole machine where it is pressure (`/proc/pressure`).",
    },
    SourceRow {
        source: Source::Cgroup,
        name: "cgroup",
        meaning: "The kernel's files of control groups: pressure in the probe's own group, the quota of those that gputune is in.",
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
            for origin in row.sources {
                assert!(!origin.architectures.is_empty() && !origin.privileges.is_empty(), "{}", row.name);
            }
        }
        let named: Vec<Source> = METRICS.iter().flat_map(|row| row.sources).map(|origin| origin.source).collect();
        let unnamed: Vec<&str> =
            SOURCES.iter().filter(|row| !named.contains(&row.source)).map(|row| row.name).collect();
        assert!(unnamed.is_empty(), "{unnamed:?}");
    }
}
