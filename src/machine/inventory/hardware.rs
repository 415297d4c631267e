//! The number formats that a program on this machine can compute in.

use crate::model::Precision;

/// The least capable GPU that a program sees; formats that it lacks cannot be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// The model.
    pub name: String,
    /// Compute capability.
    pub compute_capability: (i32, i32),
}

impl Hardware {
    /// Asks the driver for the GPUs that programs see; `None` without GPUs or an answer of the driver.
    pub fn detect() -> Option<Self> {
        Self::of(&super::patiently(super::visible_gpus)?)
    }

    /// Returns the least capable of these GPUs.
    pub fn of(gpus: &[crate::machine::telemetry::GpuFacts]) -> Option<Self> {
        let known = gpus
            .iter()
            .filter(|gpu| gpu.is_visible)
            .filter_map(|gpu| Some(Self { name: gpu.name.clone(), compute_capability: gpu.compute_capability? }));
        known.min_by_key(|hardware| hardware.compute_capability)
    }

    /// Returns true if it has a precision.
    pub fn has(&self, precision: Precision) -> bool {
        precision.is_in_hardware(self.compute_capability)
    }

    /// Returns why it lacks a precision: `bf16 begins with compute capability 8.0, and Tesla V100 has 7.0`.
    pub fn lacks(&self, precision: Precision) -> String {
        let ((since_major, since_minor), (major, minor)) = (precision.since(), self.compute_capability);
        format!(
            "{precision} begins with compute capability {since_major}.{since_minor}, and {} has {major}.{minor}",
            self.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::telemetry::GpuFacts;

    #[test]
    fn the_least_able_visible_gpu_counts() {
        let gpu = |name: &str, compute_capability, is_visible| GpuFacts {
            name: name.to_owned(),
            compute_capability: Some(compute_capability),
            is_visible,
            ..GpuFacts::default()
        };
        let gpus = [gpu("H200", (9, 0), true), gpu("T4", (7, 5), true), gpu("K80", (3, 7), false)];
        let hardware = Hardware::of(&gpus).unwrap();
        assert!(hardware.has(Precision::Fp16) && !hardware.has(Precision::Bf16));
        assert_eq!(hardware.lacks(Precision::Bf16), "bf16 begins with compute capability 8.0, and T4 has 7.5");
        assert_eq!(Hardware::of(&gpus[2..]), None);
    }
}
