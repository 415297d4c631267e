//! Ceilings: the best rates of a GPU, measured once, stored, and compared with the rates of a training step.
//!
//! `docs/device.md` describes the measurements.

#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
mod rig;
mod sample;
mod store;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

#[cfg(feature = "cuda")]
pub use crate::machine::foreign::cuda::CudaError;
#[cfg(feature = "cuda")]
pub use gpu::measure;
pub use sample::{Pace, Run, Timed, sample, wall_clock};
pub use store::{StoreError, folder, known, load, save};

use crate::model::quantity::show_number;
use crate::model::{PRECISIONS, Precision};

/// The format of the stored file; a file of another format is not read.
pub const FORMAT: u32 = 1;

/// A kind of work that has a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Matrix products in full 32 bits.
    MatmulFp32,
    /// Matrix products in tf32.
    MatmulTf32,
    /// Matrix products in bf16, sums in 32 bits.
    MatmulBf16,
    /// Matrix products in fp16, sums in 32 bits.
    MatmulFp16,
    /// Matrix products in fp8 (E4M3), result in bf16.
    MatmulFp8,
    /// Copies within device memory; bytes read and bytes written both count.
    DeviceMemory,
    /// Copies to the device from pinned memory.
    HostToDevicePinned,
    /// Copies to the device from ordinary memory.
    HostToDevicePageable,
    /// Copies from the device to pinned memory.
    DeviceToHostPinned,
    /// Copies from another GPU.
    PeerToPeer,
    /// Launches of an empty kernel.
    KernelLaunches,
}

/// The unit that a ceiling counts per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerSecond {
    /// Floating-point operations; a multiplication and an addition count as two.
    Operations,
    /// Bytes.
    Bytes,
    /// A count.
    Count,
}

/// All kinds in the order of a report, with their display names.
pub const KINDS: &[(Kind, &str, PerSecond)] = &[
    (Kind::MatmulFp32, "matmul fp32", PerSecond::Operations),
    (Kind::MatmulTf32, "matmul tf32", PerSecond::Operations),
    (Kind::MatmulBf16, "matmul bf16", PerSecond::Operations),
    (Kind::MatmulFp16, "matmul fp16", PerSecond::Operations),
    (Kind::MatmulFp8, "matmul fp8", PerSecond::Operations),
    (Kind::DeviceMemory, "device memory", PerSecond::Bytes),
    (Kind::HostToDevicePinned, "host to device, pinned", PerSecond::Bytes),
    (Kind::HostToDevicePageable, "host to device, pageable", PerSecond::Bytes),
    (Kind::DeviceToHostPinned, "device to host, pinned", PerSecond::Bytes),
    (Kind::PeerToPeer, "peer to peer", PerSecond::Bytes),
    (Kind::KernelLaunches, "kernel launches", PerSecond::Count),
];

impl Kind {
    /// Returns the kind for matrix products in a precision.
    pub fn matmul(precision: Precision) -> Self {
        match precision {
            Precision::Fp32 => Self::MatmulFp32,
            Precision::Tf32 => Self::MatmulTf32,
            Precision::Bf16 => Self::MatmulBf16,
            Precision::Fp16 => Self::MatmulFp16,
            Precision::Fp8 => Self::MatmulFp8,
        }
    }

    fn row(self) -> (&'static str, PerSecond) {
        let row = KINDS.iter().find(|(kind, ..)| *kind == self);
        row.map_or(("", PerSecond::Count), |(_, name, unit)| (name, *unit))
    }

    /// Returns its display name.
    pub fn label(self) -> &'static str {
        self.row().0
    }

    /// Returns its unit.
    pub fn unit(self) -> PerSecond {
        self.row().1
    }
}

impl PerSecond {
    /// Formats a rate for display, such as `412 TFLOP/s`.
    pub fn show(self, rate: f64) -> String {
        let (step, prefixes, unit) = match self {
            Self::Operations => (1000.0, ["", "K", "M", "G", "T", "P"], "FLOP/s"),
            Self::Bytes => (1000.0, ["", "k", "M", "G", "T", "P"], "B/s"),
            Self::Count => return format!("{}/s", show_number(rate)),
        };
        let (mut number, mut at) = (rate, 0);
        while number >= step && at + 1 < prefixes.len() {
            number /= step;
            at += 1;
        }
        format!("{} {}{unit}", show_number(number), prefixes[at])
    }
}

/// One measured ceiling, per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// The median of the samples.
    pub median: f64,
    /// Their first quartile.
    pub low: f64,
    /// Their third quartile.
    pub high: f64,
    /// The number of samples.
    pub samples: u32,
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} to {}, {} samples)", self.median, self.low, self.high, self.samples)
    }
}

/// The ceilings of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// The version of the format, [`FORMAT`].
    pub format: u32,
    /// The GPU's identity.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// The version of its driver.
    pub driver: String,
    /// The program that measured.
    pub gputune_version: String,
    /// When it was measured, in seconds since 1970.
    pub measured_at: u64,
    /// How long measuring took, in seconds.
    pub elapsed_s: f64,
    /// The measured ceilings.
    pub measured: BTreeMap<Kind, Ceiling>,
    /// The kinds that were not measured, with the reasons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<Kind, String>,
}

impl Ceilings {
    /// Returns the floating-point operations per second of matrix products in a precision.
    pub fn matmul(&self, precision: Precision) -> Option<f64> {
        self.measured.get(&Kind::matmul(precision)).map(|ceiling| ceiling.median).filter(|rate| *rate > 0.0)
    }

    /// Returns the speedup of matrix products in each precision over fp32; a search predicts gains from it.
    pub fn relative_speeds(&self) -> BTreeMap<Precision, f64> {
        let Some(full) = self.matmul(Precision::Fp32) else { return BTreeMap::new() };
        let all = PRECISIONS.iter().map(|facts| facts.precision);
        all.filter_map(|precision| Some((precision, self.matmul(precision)? / full))).collect()
    }
}

/// A model with its dense peaks in TFLOP/s, in the order of [`Precision`]. NaN: the hardware lacks the precision.
struct Peaks(&'static [&'static str], [f64; 5]);

const NONE: f64 = f64::NAN;

/// Models by words that their names contain, the more specific model first. The peaks are from NVIDIA's data sheets,
/// without sparsity and with sums in 32 bits. No GPU has confirmed them for gputune.
const MODELS: &[Peaks] = &[
    Peaks(&["H100", "PCIe"], [51.0, 378.0, 756.0, 756.0, 1513.0]),
    Peaks(&["H100", "NVL"], [60.0, 417.5, 835.5, 835.5, 1671.0]),
    Peaks(&["H100"], [67.0, 494.5, 989.5, 989.5, 1979.0]),
    Peaks(&["H200", "NVL"], [60.0, 417.5, 835.5, 835.5, 1671.0]),
    Peaks(&["H200"], [67.0, 494.5, 989.5, 989.5, 1979.0]),
    Peaks(&["A100"], [19.5, 156.0, 312.0, 312.0, NONE]),
    Peaks(&["L40S"], [91.6, 183.0, 362.0, 362.0, 733.0]),
    Peaks(&["L4"], [30.3, 60.0, 121.0, 121.0, 242.5]),
    Peaks(&["A10"], [31.2, 62.5, 125.0, 125.0, NONE]),
    Peaks(&["V100", "PCIE"], [14.0, NONE, NONE, 112.0, NONE]),
    Peaks(&["V100"], [15.7, NONE, NONE, 125.0, NONE]),
    Peaks(&["T4"], [8.1, NONE, NONE, 65.0, NONE]),
];

/// Returns the floating-point operations per second that a model's data sheet promises in a precision.
pub fn published(model: &str, precision: Precision) -> Option<f64> {
    const TERA: f64 = 1e12;
    let words: Vec<&str> = model.split([' ', '-']).collect();
    let Peaks(_, peaks) = MODELS.iter().find(|Peaks(names, _)| names.iter().all(|name| words.contains(name)))?;
    let peak = peaks[precision as usize];
    peak.is_finite().then_some(peak * TERA)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    pub(super) fn example() -> Ceilings {
        let ceiling = |median| Ceiling { median, low: median * 0.98, high: median * 1.01, samples: 20 };
        Ceilings {
            format: FORMAT,
            uuid: "GPU-1".to_owned(),
            name: "NVIDIA Test".to_owned(),
            driver: "580.95.05".to_owned(),
            gputune_version: "0.1.0".to_owned(),
            measured_at: 1,
            elapsed_s: 9.5,
            measured: BTreeMap::from([(Kind::MatmulFp32, ceiling(5e13)), (Kind::MatmulBf16, ceiling(8e14))]),
            absent: BTreeMap::from([(Kind::PeerToPeer, "one GPU".to_owned())]),
        }
    }

    /// A clock that only fake work moves forward.
    #[derive(Default)]
    pub(super) struct FakeClock(Cell<f64>);

    impl FakeClock {
        pub(super) fn pass(&self, seconds: f64) {
            self.0.set(self.0.get() + seconds);
        }

        pub(super) fn now(&self) -> f64 {
            self.0.get()
        }
    }

    /// Makes work whose repetitions each take the seconds that a function returns; each run calls the function once.
    pub(super) fn fake_work<'w>(clock: &'w FakeClock, mut each: impl FnMut() -> Result<f64, String> + 'w) -> Timed<'w> {
        let run = move |repetitions: u32| {
            let seconds = each()? * f64::from(repetitions);
            clock.pass(seconds);
            Ok(seconds)
        };
        Timed { work: 10.0, run: Box::new(run) }
    }

    #[test]
    fn every_kind_has_a_row_and_every_precision_a_kind() {
        for facts in PRECISIONS {
            let kind = Kind::matmul(facts.precision);
            assert_eq!(kind.label(), format!("matmul {}", facts.name));
            assert_eq!(kind.unit(), PerSecond::Operations);
        }
        assert_eq!(Kind::PeerToPeer.unit(), PerSecond::Bytes);
    }

    #[test]
    fn speeds_follow_from_what_was_measured() {
        let ceilings = example();
        let speeds = ceilings.relative_speeds();
        assert_eq!(speeds, BTreeMap::from([(Precision::Fp32, 1.0), (Precision::Bf16, 16.0)]));
    }

    #[test]
    fn rates_are_shown_with_three_digits() {
        assert_eq!(PerSecond::Operations.show(7.9e14), "790 TFLOP/s");
        assert_eq!(PerSecond::Bytes.show(4.02e12), "4.02 TB/s");
        assert_eq!(PerSecond::Count.show(412_345.0), "412,345/s");
    }

    #[test]
    fn models_are_found_by_the_words_of_their_name() {
        for (model, precision, peak) in [
            ("NVIDIA H100 80GB HBM3", Precision::Bf16, Some(989.5e12)),
            ("NVIDIA H100 PCIe", Precision::Bf16, Some(756e12)),
            ("NVIDIA A100-SXM4-80GB", Precision::Tf32, Some(156e12)),
            ("Tesla V100-PCIE-16GB", Precision::Fp16, Some(112e12)),
            ("Tesla T4", Precision::Bf16, None),
            ("NVIDIA L40", Precision::Bf16, None),
            ("Test", Precision::Fp32, None),
        ] {
            assert_eq!(published(model, precision), peak, "{model}");
        }
    }

    #[test]
    fn a_smaller_format_is_never_slower() {
        for Peaks(names, peaks) in MODELS {
            let known: Vec<f64> = peaks.iter().copied().filter(|peak| peak.is_finite()).collect();
            assert!(known.is_sorted(), "{names:?}");
        }
    }
}
