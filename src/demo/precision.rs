//! The number types in which the job can store its data.

use std::fmt;
use std::str::FromStr;

use super::error::DemoError;

/// The type in which parameters, momentum, gradients, activations and batches are stored.
///
/// The half precisions take half the memory of `F32`. Their matrix multiplications accumulate in 32 bits. For that, the CPU converts
/// one cache-sized tile at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// IEEE single precision, 4 bytes per value.
    #[default]
    F32,
    /// The upper half of a single: its range, 8 bits of precision, 2 bytes per value.
    Bf16,
    /// IEEE half precision, 2 bytes per value. Its gradients are scaled so that they stay above the smallest number of the type.
    F16,
}

impl Precision {
    /// All precisions, the widest first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];
}

impl fmt::Display for Precision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

impl FromStr for Precision {
    type Err = DemoError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().to_ascii_lowercase().as_str() {
            "f32" | "fp32" | "float32" => Ok(Self::F32),
            "bf16" | "bfloat16" => Ok(Self::Bf16),
            "f16" | "fp16" | "float16" => Ok(Self::F16),
            _ => Err(DemoError::InvalidOption {
                option: "precision",
                value: format!("{text:?}"),
                allowed: "f32, bf16 or f16",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse::<Precision>().unwrap(), precision);
        }
    }

    #[test]
    fn aliases_are_known_and_others_refused() {
        assert_eq!("FP32".parse::<Precision>().unwrap(), Precision::F32);
        assert_eq!("fp16".parse::<Precision>().unwrap(), Precision::F16);
        assert!("int8".parse::<Precision>().is_err());
    }
}
