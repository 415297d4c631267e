//! Decides which configs need at least as much memory as a config that did not fit.

use super::{Config, INACTIVE, MemoryRole, Parameter, Space};
use crate::model::outcome::Memory;

impl Space {
    /// Returns true if the parameters show that `candidate` needs at least as much memory as `failed`.
    ///
    /// For device memory, [`Parameter::memory_role`] decides: the candidate must be at least as large in each parameter that
    /// grows memory, and equal in each parameter of unknown effect. For host and shared memory, every number counts as
    /// growing (as workers, prefetch and batch size do), and all other parameters must be equal.
    ///
    /// [`Parameter::memory_role`]: super::Parameter::memory_role
    pub fn needs_as_much_memory(&self, candidate: &Config, failed: &Config, memory: Memory) -> bool {
        self.parameters
            .iter()
            .zip(candidate.levels.iter().zip(&failed.levels))
            .all(|(parameter, (&candidate, &failed))| needs_as_much(role(parameter, memory), candidate, failed))
    }

    /// Returns the key that two configs must share before one can be shown to need as much memory as the other. It has the
    /// levels that must be equal, and shows which growing parameters are active.
    pub(crate) fn memory_group(&self, config: &Config, memory: Memory) -> Box<[u32]> {
        let common = |(parameter, &level): (&Parameter, &u32)| match role(parameter, memory) {
            MemoryRole::Same => 0,
            MemoryRole::Grows if level != INACTIVE => 0,
            _ => level,
        };
        self.parameters.iter().zip(&config.levels).map(common).collect()
    }

    /// Returns the effect of a parameter on a kind of memory.
    pub(super) fn memory_role_of(&self, parameter: usize, memory: Memory) -> MemoryRole {
        role(&self.parameters[parameter], memory)
    }

    /// Returns true if every config with these levels of the `known` parameters needs at least as much memory as `failed`.
    pub(super) fn leads_behind(&self, known: &[usize], levels: &[u32], failed: &Config, memory: Memory) -> bool {
        known.iter().all(|&at| needs_as_much(role(&self.parameters[at], memory), levels[at], failed.levels[at]))
            && (0..self.parameters.len()).filter(|at| !known.contains(at)).all(|at| {
                let parameter = &self.parameters[at];
                match role(parameter, memory) {
                    MemoryRole::Same => true,
                    MemoryRole::Grows => failed.levels[at] == 0 && parameter.condition().is_none(),
                    MemoryRole::Unknown => false,
                }
            })
    }
}

fn role(parameter: &Parameter, memory: Memory) -> MemoryRole {
    match memory {
        Memory::Device => parameter.memory_role(),
        Memory::Host | Memory::Shared if parameter.is_ordinal() => MemoryRole::Grows,
        Memory::Host | Memory::Shared => MemoryRole::Unknown,
    }
}

fn needs_as_much(role: MemoryRole, candidate: u32, failed: u32) -> bool {
    match role {
        MemoryRole::Same => true,
        MemoryRole::Grows if candidate != INACTIVE && failed != INACTIVE => candidate >= failed,
        _ => candidate == failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::space::{Settings, Value};

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
