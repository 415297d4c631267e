//! The number formats that devices compute in, and the devices that support them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number format of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit floating point throughout.
    Fp32,
    /// Stored in 32 bits, multiplied on tensor cores with a mantissa of 10 bits.
    Tf32,
    /// 16 bits with the exponent range of 32-bit floats.
    Bf16,
    /// 16 bits with a mantissa of 10 bits.
    Fp16,
    /// 8 bits: 4 of exponent, 3 of mantissa (E4M3).
    Fp8,
}

/// The facts about one precision.
#[derive(Debug, Clone, Copy)]
pub struct PrecisionFacts {
    /// The precision.
    pub precision: Precision,
    /// Its name in gputune.
    pub name: &'static str,
    /// Its other names in specs, in lower case.
    pub also: &'static [&'static str],
    /// The first compute capability whose hardware has the precision.
    ///
    /// The source is the CUDA C++ Programming Guide: "Arithmetic Instructions" for fp16 (throughput of 16-bit
    /// operations begins at 5.3), and "Tensor Cores" for the rest. For fp8 it is the PTX ISA: the `e4m3` types of `mma`
    /// require `sm_89`.
    pub since: (i32, i32),
}

const fn facts(
    precision: Precision,
    name: &'static str,
    also: &'static [&'static str],
    since: (i32, i32),
) -> PrecisionFacts {
    PrecisionFacts { precision, name, also, since }
}

/// All precisions.
pub const PRECISIONS: &[PrecisionFacts] = &[
    facts(Precision::Fp32, "fp32", &["f32", "float32", "float", "32", "full"], (1, 0)),
    facts(Precision::Tf32, "tf32", &["tensorfloat32", "tensor_float_32"], (8, 0)),
    facts(Precision::Bf16, "bf16", &["bfloat16", "bf16-mixed", "bf16-true", "mixed_bfloat16"], (8, 0)),
    facts(
        Precision::Fp16,
        "fp16",
        &["f16", "float16", "half", "16", "16-mixed", "16-true", "fp16-mixed", "mixed_float16"],
        (5, 3),
    ),
    facts(Precision::Fp8, "fp8", &["f8", "float8", "fp8_e4m3", "e4m3", "float8_e4m3fn", "fp8-mixed"], (8, 9)),
];

impl Precision {
    fn facts(self) -> &'static PrecisionFacts {
        let same = |facts: &&PrecisionFacts| facts.precision == self;
        PRECISIONS.iter().find(same).unwrap_or(&PRECISIONS[0])
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the precision of a name, in upper or lower case.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let facts = PRECISIONS.iter().find(|facts| facts.name == name || facts.also.contains(&name.as_str()));
        facts.map(|facts| facts.precision)
    }

    /// Returns the first compute capability whose hardware has it.
    pub fn since(self) -> (i32, i32) {
        self.facts().since
    }

    /// Returns true if the hardware of this compute capability has it.
    pub fn is_in_hardware(self, compute_capability: (i32, i32)) -> bool {
        compute_capability >= self.since()
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_means_one_precision() {
        for facts in PRECISIONS {
            assert_eq!(facts.precision.name(), facts.name);
            assert_eq!(serde_json::to_value(facts.precision).unwrap(), facts.name);
            for name in facts.also.iter().chain([&facts.name]) {
                assert_eq!(Precision::named(&name.to_uppercase()), Some(facts.precision), "{name}");
            }
        }
        assert_eq!(Precision::named("int8"), None);
    }

    #[test]
    fn hardware_is_told_by_compute_capability() {
        let has = |major, minor| -> Vec<&str> {
            let has = |facts: &&PrecisionFacts| facts.precision.is_in_hardware((major, minor));
            PRECISIONS.iter().filter(has).map(|facts| facts.name).collect()
        };
        assert_eq!(has(5, 2), ["fp32"]);
        assert_eq!(has(7, 0), ["fp32", "fp16"]);
        assert_eq!(has(7, 5), ["fp32", "fp16"]);
        assert_eq!(has(8, 0), ["fp32", "tf32", "bf16", "fp16"]);
        assert_eq!(has(8, 9), ["fp32", "tf32", "bf16", "fp16", "fp8"]);
        assert_eq!(has(12, 0), ["fp32", "tf32", "bf16", "fp16", "fp8"]);
    }
}
