//! Which configs need at least as much memory as one that did not fit.

use super::{Config, MemoryRole, Space};
use crate::outcome::Memory;

impl Space {
    /// Whether `candidate` needs at least as much memory as `failed`, as far as the parameters tell.
    ///
    /// For device memory [`Parameter::memory_role`] decides: the candidate must be at least as large in each
    /// parameter that grows memory and the same in each whose effect is unknown. For host and shared memory every
    /// number counts as growing (workers, prefetch and batch size all do), and everything else must be the same.
    ///
    /// [`Parameter::memory_role`]: super::Parameter::memory_role
    pub fn needs_as_much_memory(&self, candidate: &Config, failed: &Config, memory: Memory) -> bool {
        self.parameters.iter().zip(candidate.levels().zip(failed.levels())).all(|(parameter, (candidate, failed))| {
            let role = match memory {
                Memory::Device => parameter.memory_role(),
                Memory::Host | Memory::Shared if parameter.is_ordinal() => MemoryRole::Grows,
                Memory::Host | Memory::Shared => MemoryRole::Unknown,
            };
            match (role, candidate, failed) {
                (MemoryRole::Same, _, _) => true,
                (MemoryRole::Grows, Some(candidate), Some(failed)) => candidate >= failed,
                _ => candidate == failed,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{Parameter, Settings, Value};

    fn space() -> Space {
        Space::new([
            Parameter::powers_of_two("batch_size", 8, 64),
            Parameter::range("workers", 0, 4, 2),
            Parameter::values("precision", ["fp32", "bf16"]),
        ])
        .unwrap()
    }

    fn config(space: &Space, batch: i64, workers: i64, precision: &str) -> Config {
        let settings: Settings =
            [("batch_size", Value::from(batch)), ("workers", workers.into()), ("precision", precision.into())]
                .into_iter()
                .collect();
        space.locate(&settings).unwrap()
    }

    #[test]
    fn a_larger_batch_needs_more_device_memory_whatever_the_workers() {
        let space = space();
        let failed = config(&space, 32, 4, "fp32");
        let needs = |batch, workers, precision| {
            space.needs_as_much_memory(&config(&space, batch, workers, precision), &failed, Memory::Device)
        };
        assert!(needs(32, 0, "fp32"));
        assert!(needs(64, 4, "fp32"));
        assert!(!needs(16, 4, "fp32"));
        assert!(!needs(64, 4, "bf16"), "another precision may fit");
    }

    #[test]
    fn fewer_workers_may_need_less_host_memory() {
        let space = space();
        let failed = config(&space, 32, 2, "fp32");
        let needs =
            |batch, workers| space.needs_as_much_memory(&config(&space, batch, workers, "fp32"), &failed, Memory::Host);
        assert!(needs(32, 4));
        assert!(!needs(64, 0));
    }
}
