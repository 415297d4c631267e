//! The device memory of a config, divided into parts.

use serde::{Deserialize, Serialize};

use crate::model::{Measurement, Metric, quantity::show_bytes};

/// Peaks of the parts of a GPU's memory, as torch's allocator counts them on the fullest GPU of rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemoryParts {
    /// Memory of tensors, in bytes.
    pub allocated_bytes: u64,
    /// The same, with memory that another stream still uses.
    pub active_bytes: u64,
    /// Memory that the allocator holds, used or not.
    pub reserved_bytes: u64,
    /// The unused parts of that memory that cannot be freed.
    pub inactive_split_bytes: u64,
    /// The share of reserved memory that no tensor used: the difference of the two peaks over the peak of reserved memory.
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

    /// Returns the parts in one line.
    pub fn line(&self) -> String {
        format!("memory    {}", self.words())
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

/// Returns the memory of the only process on the only GPU, by the driver's list of processes, without reserved memory.
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
    use crate::model::{Fact, GpuUse, Reading, Source};

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
            parts.line(),
            "memory    6.00 GiB of tensors in 8.00 GiB of the allocator (25 % unused, 1.00 GiB of it in split blocks), and 512 MiB \
             outside it"
        );
        for (ranks, own) in [(2, Some(8.5)), (1, None), (1, Some(7.0))] {
            assert_eq!(MemoryParts::of(&measured(ranks, own)).unwrap().context_bytes, None, "{ranks} {own:?}");
        }
        assert_eq!(MemoryParts::of(&Measurement::default()), None);
    }
}
