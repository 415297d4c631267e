//! The peaks of data sheets, for GPUs that were not measured. No GPU has confirmed them for gputune.

use crate::model::Precision;

/// A model with its dense peaks in TFLOP/s: fp32, tf32, bf16, fp16, fp8. NaN: the hardware does not have the precision.
struct Peaks(&'static [&'static str], [f64; 5]);

const NONE: f64 = f64::NAN;

/// Models by words that their name contains, the more specific first. Numbers are those of NVIDIA's data sheets, without
/// sparsity and with sums in 32 bits.
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
    let peak = match precision {
        Precision::Fp32 => peaks[0],
        Precision::Tf32 => peaks[1],
        Precision::Bf16 => peaks[2],
        Precision::Fp16 => peaks[3],
        Precision::Fp8 => peaks[4],
    };
    peak.is_finite().then_some(peak * TERA)
}

#[cfg(test)]
mod tests {
    use super::*;

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
