//! The measurement of a probe: its numbers with their intervals, and facts about the job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::account::{Account, Spent};
use super::fact::Facts;
use super::metric::{Estimate, GpuUse, Metric, Readings};

/// The numbers of a probe that ended well. In JSON, its parts are flattened into it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measurement {
    /// Work per second in [`unit`](Self::unit); larger is faster.
    pub throughput: Option<Estimate>,
    /// The unit of the throughput, such as `samples/s`.
    pub unit: String,
    /// Framework and version, as the step reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    /// The steps behind the throughput; filled from the window of a probe.
    #[serde(flatten)]
    pub timing: Timing,
    /// The losses of the first steps, in order, for comparing numerics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_losses: Vec<f64>,
    /// Device memory, as reported by the step or the driver.
    #[serde(flatten)]
    pub memory: MemoryUse,
    /// The probe's use of the machine, as read by the meters.
    #[serde(flatten)]
    pub machine: MachineUse,
    /// The number of processes of a distributed job that reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Seconds per step in each phase that the step reports, such as `data_wait`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub phase_seconds: BTreeMap<String, f64>,
    /// The use of the run's wall time, from its start to the last observed step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// Further numbers that the step reports, the median of each; the last reported `loss` is included.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// The facts that the step reports about itself: the settings it uses, and signs of its waits.
    #[serde(skip_serializing_if = "Facts::is_empty")]
    pub facts: Facts,
    /// The comparison of the losses with full-precision losses, if the config changes the numerics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numerics: Option<Numerics>,
    /// The cost of communication between ranks, if an experiment next to this probe measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// The probe's wall time, split by use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
    /// True if it was forked from a process that had already done the imports.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_forked: bool,
    /// True if it was measured in a process that had already measured another config.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_live: bool,
    /// The round that it was measured in, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<InRound>,
    /// The number of event lines that could not be read.
    #[serde(skip_serializing_if = "is_zero")]
    pub bad_lines: u64,
}

/// A config's part of a round: several configs measured in short slices, seconds apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InRound {
    /// The number of the round, counted from 1.
    pub number: u32,
    /// The config's process, named by the number of the trial that started it.
    pub process: u32,
    /// The rate of each slice, in order of measurement.
    pub slices: Vec<f64>,
}

/// The steps behind a throughput.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timing {
    /// Number of steps (or readings of a rate) behind the throughput, warm-up not counted.
    pub steps: u64,
    /// Number of steps (or readings) dropped as warm-up.
    pub warmup_steps: u64,
    /// Wall time of a step, data wait included, in seconds; absent if only a rate was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_seconds: Option<f64>,
    /// Samples per step of all ranks together, as the step reports them; the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_step: Option<f64>,
    /// Wall time that was measured after warm-up, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_seconds: Option<f64>,
    /// Seconds left of the measuring limit when the probe stopped early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_seconds: Option<f64>,
    /// True if the interval was still wider than requested when the measuring time ran out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unstable: bool,
    /// Steps excluded from the throughput, by cause: `epoch`, `evaluation`, `checkpoint`, `recompile`, or else `other`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub outliers: BTreeMap<String, Outliers>,
    /// The rate over whole epochs, as a share of the rate between their ends. The throughput includes it. Absent if fewer than two
    /// ends of epochs were seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_factor: Option<f64>,
    /// The cost of an epoch's end. Absent if fewer than two ends of epochs were seen, and no experiment measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_end: Option<EpochEnd>,
    /// The cost of an evaluation between steps, and the samples from one to the next. The throughput excludes it. Absent if fewer
    /// than four were seen, or the end of an epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<EpochEnd>,
    /// The time of a step at the end of the measured time, as a multiple of its time at the start, if steps change steadily.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trend: Option<f64>,
}

/// The time of an epoch's end: evaluation, checkpoint, scheduler, and the restart of the loader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochEnd {
    /// The time that an epoch takes in addition to its steps, in seconds.
    pub seconds: f64,
    /// The part of it that evaluation takes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation_s: Option<f64>,
    /// Samples of an epoch, of all ranks together.
    pub samples: f64,
}

impl EpochEnd {
    /// Returns the rate over whole epochs, as a share of a rate between their ends, in samples per second.
    pub fn factor(&self, rate: f64) -> f64 {
        let steps = self.samples / rate;
        let factor = steps / (steps + self.seconds);
        if factor.is_finite() { factor } else { 1.0 }
    }
}

/// The device memory of a probe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryUse {
    /// Largest device memory in use after warm-up, in bytes, as the step reports it. On a machine without a GPU, an
    /// unreported peak is the memory of the step's processes.
    #[serde(rename = "peak_memory_bytes", skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// The peak during warm-up, if it was larger: compilers and autotuners use memory that they free later.
    #[serde(rename = "warmup_peak_memory_bytes", skip_serializing_if = "Option::is_none")]
    pub warmup_peak_bytes: Option<u64>,
    /// The device's memory capacity in bytes.
    #[serde(rename = "memory_capacity_bytes", skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// How often the allocator freed its caches and tried again after warm-up; any retry means that the config does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator_retries: Option<u64>,
    /// The same during warm-up, if it happened: autotuners try algorithms that need much memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_allocator_retries: Option<u64>,
}

/// The meters' readings of the machine while a probe ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineUse {
    /// Largest memory of the probe's processes together, in bytes; pages that they share count once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_peak_bytes: Option<u64>,
    /// Largest use of `/dev/shm` by the probe's processes, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory_peak_bytes: Option<u64>,
    /// The share of CPU time that other programs, and other machines on the same host, used during the probe. Absent if a
    /// tenth of the time or more was idle, or if they used less than a tenth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign_cpu_share: Option<f64>,
    /// The readings of each GPU that the probe used, over the measured window.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUse>,
    /// Resources that grew steadily while it was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Growth>,
    /// The readings of the probe's processes on the host, over the measured window.
    #[serde(skip_serializing_if = "Readings::is_empty")]
    pub host: Readings,
}

/// A resource with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Memory of the processes of the job, in bytes.
    HostMemory,
    /// Memory that tensors hold on a device, in bytes.
    DeviceMemory,
    /// Open files of one process.
    OpenFiles,
}

/// The steady growth of a resource while a probe was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// The resource.
    pub resource: Resource,
    /// How much it grows in a second.
    pub per_second: f64,
    /// How much is left until the limit.
    pub left: f64,
}

impl Growth {
    /// Returns the seconds until the limit is reached.
    pub fn seconds_left(&self) -> f64 {
        self.left / self.per_second
    }
}

/// The losses of a config compared with the losses in full precision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Numerics {
    /// The difference of the losses as a share: see [`numerics::drift`](crate::search::numerics::drift).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
    /// The losses of the first steps in full precision, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reference_losses: Vec<f64>,
    /// Why the losses could not be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
}

/// The phase, and the cause of [excluded](Timing::outliers) steps, in which the script evaluates its model.
pub const EVALUATION: &str = "evaluation";

/// Steps excluded from a throughput.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Outliers {
    /// The number of steps.
    pub steps: u64,
    /// Their wall time together, in seconds.
    pub seconds: f64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The metrics that every measurement may have, besides the phases and the step's own metrics.
pub const METRICS: &[(&str, &str)] = &[
    ("throughput", "work per second, in the unit that the step reports"),
    ("step_time", "seconds per step, data wait included"),
    ("peak_memory", "largest device memory in use, in bytes"),
    ("memory_headroom", "share of device memory left free at the peak"),
    ("host_memory", "largest memory of the probe's processes together, in bytes"),
    ("power", "mean power of all GPUs that the probe used together, in watts, or what the step reports"),
    ("energy_per_sample", "power over throughput, in joules, or what the step reports"),
];

/// The unit of a throughput that counts samples.
pub const SAMPLES_PER_SECOND: &str = "samples/s";
/// The unit of a throughput that counts steps because no samples are reported.
pub const STEPS_PER_SECOND: &str = "steps/s";

/// The metric for the samples per second of the training loader, if the throughput does not count samples.
pub const HANDED_OUT: &str = "loader_samples_per_second";

/// The metric that holds the floating-point operations of a step, if the step reports them.
pub const FLOPS: &str = "flops";

impl Measurement {
    /// Returns the floating-point operations per second, if the step reports its [`FLOPS`].
    pub fn flops_per_second(&self) -> Option<f64> {
        let rate = self.metrics.get(FLOPS)? / self.timing.step_seconds?;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// Returns the floating-point operations per sample, if the step reports both.
    pub fn flops_per_sample(&self) -> Option<f64> {
        let flops = self.metrics.get(FLOPS)? / self.timing.samples_per_step?;
        (flops.is_finite() && flops > 0.0).then_some(flops)
    }

    /// Returns a metric by its name: one of [`METRICS`], a phase, or a number that the step reports.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let bytes = |size: Option<u64>| size.map(|size| size as f64);
        match name {
            "throughput" => self.throughput.map(|throughput| throughput.value),
            "step_time" => self.timing.step_seconds,
            "peak_memory" => bytes(self.memory.peak_bytes),
            "memory_headroom" => self.memory_headroom(),
            "host_memory" => bytes(self.machine.host_peak_bytes),
            // A `power` that the step reports comes first: its meter may cover more than the GPU boards.
            "power" => self.metrics.get(name).copied().or_else(|| self.gpu_power()),
            "energy_per_sample" => self.metrics.get(name).copied().or_else(|| self.energy_per_sample()),
            _ => self.metrics.get(name).or_else(|| self.phase_seconds.get(name)).copied(),
        }
    }

    /// Returns the mean power of all GPUs together, in watts; `None` without GPUs, or if one GPU does not report it.
    fn gpu_power(&self) -> Option<f64> {
        let watts = self.machine.gpus.iter().map(|gpu| Some(gpu.readings.get(&Metric::Power)?.value));
        watts.sum::<Option<f64>>().filter(|_| !self.machine.gpus.is_empty())
    }

    /// Returns the joules per unit of work that the throughput counts.
    fn energy_per_sample(&self) -> Option<f64> {
        let energy = self.metric("power")? / self.throughput?.value;
        energy.is_finite().then_some(energy)
    }

    /// Returns the share of device memory that stayed free at the peak, from 0 to 1.
    pub fn memory_headroom(&self) -> Option<f64> {
        let (peak, capacity) = (self.memory.peak_bytes?, self.memory.capacity_bytes?);
        (capacity > 0).then(|| capacity.saturating_sub(peak) as f64 / capacity as f64)
    }
}

/// The result of an experiment next to the first probe of a search.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exchange {
    /// The share of the time that unhidden communication between ranks takes, from 0 to 1; `None` if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed: Option<Estimate>,
    /// Parameters that keep their settings of that probe, since changing them could gain next to nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closes: Vec<String>,
    /// The share and the closed parameters, in words.
    pub words: String,
}
