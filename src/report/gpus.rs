//! Describes the readings of the GPUs, the parts of their memory, and notable readings of a probe's processes.

use serde::{Deserialize, Serialize};

use super::escape::plain;
use crate::model::quantity::{show_bytes, show_number};
use crate::model::{GpuUse, Measurement, Metric, Reading, Readings, Source, Together, metric::together};

/// The share of time from which a power limit is mentioned: a round number.
const HELD_BACK: f64 = 0.1;

/// Describes each GPU and all GPUs together; a line may have an empty label.
pub(super) fn gpu_lines(gpus: &[GpuUse]) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for gpu in gpus {
        let known = [gpu.name.as_str(), gpu.uuid.as_str()].into_iter().filter(|text| !text.is_empty());
        let title = known.map(plain).collect::<Vec<_>>().join(", ");
        let of_it = [Some(activity(std::slice::from_ref(gpu))), traffic(gpu), power(gpu), memory(gpu), errors(gpu)];
        let mut texts: Vec<String> = Some(title).filter(|title| !title.is_empty()).into_iter().collect();
        texts.extend(of_it.into_iter().flatten());
        texts.extend(held_back(std::slice::from_ref(gpu)));
        texts.extend(
            gpu.absent.iter().filter(|why| why_unknown(gpu) != Some(why)).map(|why| format!("absent: {}", plain(why))),
        );
        lines.extend(texts.into_iter().enumerate().map(|(at, text)| (if at == 0 { "GPU" } else { "" }, text)));
    }
    if gpus.len() > 1 {
        lines.push(("together", activity(gpus)));
    }
    lines
}

/// Describes in one line how busy the GPUs of the best config were, then what limited them.
pub(super) fn gpu_summary(gpus: &[GpuUse]) -> Vec<String> {
    if gpus.is_empty() {
        return Vec::new();
    }
    let count = if gpus.len() > 1 { format!("{} together: ", gpus.len()) } else { String::new() };
    let power =
        together(gpus, Metric::Power).map(|power| format!(", {} W", show_number(power.mean))).unwrap_or_default();
    let mut lines = vec![format!("{count}{}{power}", activity(gpus))];
    lines.extend(held_back(gpus));
    lines
}

/// Describes how busy the multiprocessors were, or why that is not known. NVML's utilisation (`GPU busy`) is another
/// number: the share of time in which any kernel ran, however small.
fn activity(gpus: &[GpuUse]) -> String {
    const NAMES: &[(Metric, &str)] = &[
        (Metric::SmActive, "SM activity"),
        (Metric::SmOccupancy, "occupancy"),
        (Metric::TensorActive, "tensor cores"),
        (Metric::DramActive, "memory bandwidth"),
        (Metric::GpuBusy, "GPU busy"),
    ];
    let mut parts: Vec<String> = Vec::new();
    if together(gpus, Metric::SmActive).is_none() {
        let reason = gpus.iter().find_map(why_unknown).and_then(|why| why.split_once(": "));
        let why = reason.map(|(_, why)| format!(" ({})", plain(why))).unwrap_or_default();
        parts.push(format!("SM utilisation: unknown{why}"));
    }
    parts.extend(
        NAMES.iter().filter_map(|(metric, name)| Some(format!("{name} {}", shown_share(together(gpus, *metric)?)))),
    );
    parts.join(", ")
}

fn why_unknown(gpu: &GpuUse) -> Option<&String> {
    gpu.absent.iter().find(|why| why.starts_with("SM activity"))
}

fn shown_share(share: Together) -> String {
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let (least, most) = (percent(share.least), percent(share.most));
    let spread = if least == most { String::new() } else { format!(" ({least} to {most} %)") };
    format!("{} %{spread}", percent(share.mean))
}

fn value(gpu: &GpuUse, metric: Metric) -> Option<f64> {
    Some(gpu.readings.get(&metric)?.value)
}

fn bytes(gpu: &GpuUse, metric: Metric) -> Option<String> {
    value(gpu, metric).map(|bytes| show_bytes(bytes.max(0.0) as u64))
}

fn traffic(gpu: &GpuUse) -> Option<String> {
    let pair = |name: &str, received: Metric, sent: Metric| {
        Some(format!("{name} {}/s received, {}/s sent", bytes(gpu, received)?, bytes(gpu, sent)?))
    };
    let pcie = pair("PCIe", Metric::PcieReceived, Metric::PcieSent);
    joined(&[pcie, pair("NVLink", Metric::NvlinkReceived, Metric::NvlinkSent)])
}

fn power(gpu: &GpuUse) -> Option<String> {
    let number = |metric: Metric, unit: &str| Some(format!("{} {unit}", show_number(value(gpu, metric)?)));
    let clock = |metric: Metric, name: &str| Some(format!("{name} clock {}", number(metric, "MHz")?));
    let [sm, memory] = [clock(Metric::SmClock, "SM"), clock(Metric::MemoryClock, "memory")];
    joined(&[number(Metric::Power, "W"), number(Metric::Energy, "J"), sm, memory])
}

fn memory(gpu: &GpuUse) -> Option<String> {
    let (own, others) = (bytes(gpu, Metric::MemoryOwn)?, bytes(gpu, Metric::MemoryOthers)?);
    Some(format!("memory {own}, and {others} in other processes"))
}

fn errors(gpu: &GpuUse) -> Option<String> {
    let ecc = value(gpu, Metric::EccErrors).filter(|count| *count > 0.0);
    let ecc = ecc.map(|count| format!("{} memory errors that could not be corrected", show_number(count)));
    let codes: Vec<String> = gpu.xids.iter().map(u64::to_string).collect();
    joined(&[ecc, (!codes.is_empty()).then(|| format!("the driver reported Xid {}", codes.join(", ")))])
}

fn held_back(gpus: &[GpuUse]) -> Option<String> {
    let share = together(gpus, Metric::ThrottledByPower).filter(|share| share.most >= HELD_BACK)?;
    Some(format!("held back by the power limit for {} of the time", shown_share(share)))
}

fn joined(parts: &[Option<String>]) -> Option<String> {
    let parts: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The share of the time from which a wait is mentioned: a round number.
const NOTABLE: f64 = 0.05;
/// The bytes read per second from which reads are mentioned: a round number, above what a program reads for itself.
const NOTABLE_READS: f64 = 1e6;

/// Returns a line like `CPU 3.2 cores, reads 113 MiB/s, waits for storage 12 % of the time`, if a reading is notable.
pub(super) fn host_words(host: &Readings) -> Option<String> {
    let value = |metric: Metric| host.get(&metric).map(|reading| reading.value);
    let mut words = Vec::new();
    words.extend(value(Metric::CpuCores).map(|cores| format!("{} {cores:.1} cores", Metric::CpuCores.label())));
    let reads = value(Metric::ReadRate).filter(|rate| *rate >= NOTABLE_READS);
    words.extend(reads.map(|rate| format!("{} {}/s", Metric::ReadRate.label(), show_bytes(rate as u64))));
    for metric in [Metric::CpuPressure, Metric::IoPressure, Metric::MemoryPressure] {
        if let Some(Reading { value, source }) = host.get(&metric).filter(|reading| reading.value >= NOTABLE) {
            let whose = if *source == Source::Proc { " (on the whole machine)" } else { "" };
            words.push(format!("{} {:.0} % of the time{whose}", metric.label(), value * 100.0));
        }
    }
    let throttled = value(Metric::CpuThrottled).filter(|share| *share >= NOTABLE);
    let label = Metric::CpuThrottled.label();
    words.extend(throttled.map(|share| format!("{label} in {:.0} % of its periods", share * 100.0)));
    (!words.is_empty()).then(|| words.join(", "))
}

/// Peaks of the parts of a GPU's memory, as torch's allocator counts them on the fullest GPU of rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemoryParts {
    /// Memory of tensors, in bytes.
    pub allocated_bytes: u64,
    /// Memory of tensors, and of freed tensors that another stream still uses, in bytes.
    pub active_bytes: u64,
    /// Memory that the allocator holds, used or not, in bytes.
    pub reserved_bytes: u64,
    /// Unused parts of split blocks, which the allocator cannot free, in bytes.
    pub inactive_split_bytes: u64,
    /// The share of reserved memory that no tensor used: 1 - peak of allocated memory / peak of reserved memory.
    pub fragmentation: f64,
    /// Memory of the process outside the allocator: the CUDA context and libraries. Known for one process on one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_bytes: Option<u64>,
}

impl MemoryParts {
    /// Returns the parts; `None` if the step did not report them.
    pub fn of(measurement: &Measurement) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of memory")]
        let bytes = |name: &str| Some(measurement.facts.number(&format!("memory.{name}"))? as u64);
        let (allocated_bytes, reserved_bytes) = (bytes("allocated")?, bytes("reserved")?);
        Some(Self {
            allocated_bytes,
            active_bytes: bytes("active")?,
            reserved_bytes,
            inactive_split_bytes: bytes("inactive_split")?,
            fragmentation: measurement.facts.number("memory.fragmentation")?,
            context_bytes: context(measurement, reserved_bytes),
        })
    }

    /// Returns the parts without a label.
    pub fn words(&self) -> String {
        let context = self.context_bytes.map(|bytes| format!(", and {} outside it", show_bytes(bytes)));
        format!(
            "{} of tensors in {} of the allocator ({:.0} % unused, {} of it in split blocks){}",
            show_bytes(self.allocated_bytes),
            show_bytes(self.reserved_bytes),
            self.fragmentation * 100.0,
            show_bytes(self.inactive_split_bytes),
            context.unwrap_or_default()
        )
    }
}

/// Returns the process's memory minus the allocator's. `None` unless one process used one GPU, or if it is negative.
fn context(measurement: &Measurement, reserved_bytes: u64) -> Option<u64> {
    let [gpu] = measurement.machine.gpus.as_slice() else { return None };
    let own = gpu.readings.get(&Metric::MemoryOwn)?.value;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of memory")]
    let own = own as u64;
    let is_alone = measurement.ranks.unwrap_or(1) <= 1;
    own.checked_sub(reserved_bytes).filter(|_| is_alone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Fact;

    fn gpu(readings: &[(Metric, f64)], absent: &[&str]) -> GpuUse {
        let reading = |&(metric, value): &(Metric, f64)| (metric, Reading { value, source: Source::Gpm });
        GpuUse {
            uuid: "GPU-a1".to_owned(),
            name: "NVIDIA H200".to_owned(),
            readings: readings.iter().map(reading).collect(),
            xids: vec![31],
            absent: absent.iter().map(|&why| why.to_owned()).collect(),
        }
    }

    #[test]
    fn a_power_limit_that_holds_gpus_back_is_named_with_its_spread() {
        let gpus = [0.8, 0.4].map(|share| gpu(&[(Metric::ThrottledByPower, share)], &[]));
        assert_eq!(gpu_summary(&gpus)[1], "held back by the power limit for 60 % (40 to 80 %) of the time");
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let reason = "SM activity, SM occupancy: GPM: not supported by this device";
        let gpu = gpu(&[(Metric::GpuBusy, 0.97)], &[reason, "power: no permission"]);
        let words = "SM utilisation: unknown (GPM: not supported by this device), GPU busy 97 %";
        assert_eq!(gpu_summary(std::slice::from_ref(&gpu)), [words]);
        let lines: Vec<String> = gpu_lines(&[gpu]).into_iter().map(|(_, text)| text).collect();
        assert_eq!(lines[1..], [words, "the driver reported Xid 31", "absent: power: no permission"]);
        assert_eq!(gpu_summary(&[]), Vec::<String>::new());
    }

    #[test]
    fn only_what_says_something_is_said() {
        let readings = |readings: &[(Metric, f64, Source)]| {
            readings.iter().map(|&(metric, value, source)| (metric, Reading { value, source })).collect::<Readings>()
        };
        assert_eq!(host_words(&Readings::new()), None);
        let quiet = [
            (Metric::CpuCores, 0.96, Source::Proc),
            (Metric::ReadRate, 5e4, Source::Proc),
            (Metric::IoPressure, 0.01, Source::Cgroup),
            (Metric::CpuThrottled, 0.0, Source::Cgroup),
            (Metric::HostMemory, 1e9, Source::Proc),
        ];
        assert_eq!(host_words(&readings(&quiet)).unwrap(), "CPU 1.0 cores");
        let loud = [
            (Metric::CpuCores, 3.21, Source::Proc),
            (Metric::ReadRate, 118_489_088.0, Source::Proc),
            (Metric::CpuPressure, 0.3, Source::Proc),
            (Metric::IoPressure, 0.12, Source::Cgroup),
            (Metric::CpuThrottled, 0.5, Source::Cgroup),
        ];
        assert_eq!(
            host_words(&readings(&loud)).unwrap(),
            "CPU 3.2 cores, reads 113 MiB/s, waits for a processor 30 % of the time (on the whole machine), waits for storage \
             12 % of the time, held back by the CPU quota in 50 % of its periods"
        );
    }

    const GIB: f64 = (1u64 << 30) as f64;

    fn measured(ranks: u32, own: Option<f64>) -> Measurement {
        let parts = [("allocated", 6.0), ("active", 6.0), ("reserved", 8.0), ("inactive_split", 1.0)];
        let bytes = parts.map(|(name, gib)| (format!("memory.{name}"), Fact::Number(gib * GIB)));
        let share = ("memory.fragmentation".to_owned(), Fact::Number(0.25));
        let mut gpu = GpuUse::default();
        let reading = own.map(|gib| Reading { value: gib * GIB, source: Source::NvmlProcesses });
        gpu.readings.extend(reading.map(|reading| (Metric::MemoryOwn, reading)));
        let mut measurement = Measurement { ranks: Some(ranks), ..Measurement::default() };
        measurement.facts = bytes.into_iter().chain([share]).collect();
        measurement.machine.gpus = vec![gpu];
        measurement
    }

    #[test]
    fn the_context_is_the_rest_of_the_only_process() {
        let parts = MemoryParts::of(&measured(1, Some(8.5))).unwrap();
        assert_eq!(
            parts.words(),
            "6.00 GiB of tensors in 8.00 GiB of the allocator (25 % unused, 1.00 GiB of it in split blocks), and 512 MiB \
             outside it"
        );
        for (ranks, own) in [(2, Some(8.5)), (1, None), (1, Some(7.0))] {
            assert_eq!(MemoryParts::of(&measured(ranks, own)).unwrap().context_bytes, None, "{ranks} {own:?}");
        }
        assert_eq!(MemoryParts::of(&Measurement::default()), None);
    }
}
