//! Keeps the walls: configs that needed too much memory. A wall rules out all configs that need at least as much
//! memory.

use std::collections::HashMap;

use crate::model::{Config, History, Memory, Objective, Space};

/// The configs that did not fit into memory. A config that another wall already rules out is left out.
#[derive(Debug, Clone)]
pub(super) struct Walls<'a> {
    pub(super) walls: Vec<(&'a Config, Memory)>,
    /// The walls of each group, each with its index in the history.
    groups: HashMap<Group, Vec<(usize, &'a Config)>>,
}

/// The kind of memory, and the levels that two configs must share so that their needs of this memory can be compared.
type Group = (Memory, Box<[u32]>);

impl<'a> Walls<'a> {
    pub(super) fn of(space: &Space, objective: &Objective, history: &'a History) -> Self {
        let mut groups: HashMap<Group, Vec<(usize, &Config)>> = HashMap::new();
        for (place, trial) in history.trials().iter().enumerate() {
            let Some(memory) = objective.lacks_memory(&trial.outcome) else { continue };
            let config = &trial.config;
            let group = groups.entry((memory, space.memory_group(config, memory))).or_default();
            if group.iter().any(|(_, wall)| space.needs_as_much_memory(config, wall, memory)) {
                continue;
            }
            group.retain(|(_, wall)| !space.needs_as_much_memory(wall, config, memory));
            group.push((place, config));
        }
        let all = groups.iter().flat_map(|((memory, _), group)| group.iter().map(move |wall| (*wall, *memory)));
        let mut walls: Vec<((usize, &Config), Memory)> = all.collect();
        walls.sort_unstable_by_key(|((place, _), _)| *place);
        Self { walls: walls.into_iter().map(|((_, config), memory)| (config, memory)).collect(), groups }
    }

    pub(super) fn rule_out(&self, space: &Space, config: &Config) -> bool {
        /// With at most this many walls, comparing with each wall is faster than looking up the group.
        const FEW: usize = 16;
        let needs = |(wall, memory): &(&Config, Memory)| space.needs_as_much_memory(config, wall, *memory);
        if self.walls.len() <= FEW {
            return self.walls.iter().any(needs);
        }
        [Memory::Device, Memory::Host, Memory::Shared].into_iter().any(|memory| {
            let group = self.groups.get(&(memory, space.memory_group(config, memory)));
            group.into_iter().flatten().any(|(_, wall)| needs(&(*wall, memory)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Expression, Failure, MemoryRole, Outcome, Parameter, Permutation, Walk};

    #[test]
    fn they_rule_out_what_all_failures_do_and_none_follows_from_another() {
        let space = Space::new([
            Parameter::powers_of_two("batch_size", 8, 256),
            Parameter::range("workers", 0, 3, 1),
            Parameter::range("cache", 1, 3, 1)
                .memory(MemoryRole::Grows)
                .when(Expression::parse("workers > 1").unwrap()),
            Parameter::values("precision", ["fp32", "tf32", "bf16"]),
        ])
        .unwrap();
        let configs: Vec<Config> = Walk::new(&space).collect();
        let kinds = [Memory::Device, Memory::Host, Memory::Shared];
        for (seed, count) in [(1, 3), (2, 12), (3, 40), (4, 130)] {
            let order = Permutation::new(configs.len() as u128, seed);
            let failed: Vec<(&Config, Memory)> = (0..count)
                .map(|at| (&configs[usize::try_from(order.at(at).unwrap()).unwrap()], kinds[at as usize % 3]))
                .collect();
            let lacks = |memory| Outcome::OutOfMemory { memory, failure: Failure::new("full") };
            let history =
                crate::search::tests::history(failed.iter().map(|&(config, memory)| (config.clone(), lacks(memory))));
            let objective = Objective::default();
            let walls = Walls::of(&space, &objective, &history);
            assert!(walls.walls.len() <= failed.len());
            for config in &configs {
                let by_all = failed.iter().any(|(wall, memory)| space.needs_as_much_memory(config, wall, *memory));
                assert_eq!(walls.rule_out(&space, config), by_all);
            }
            for (at, (wall, memory)) in walls.walls.iter().enumerate() {
                let follows = walls.walls.iter().enumerate().any(|(other, (from, kind))| {
                    other != at && kind == memory && space.needs_as_much_memory(wall, from, *memory)
                });
                assert!(!follows, "{wall:?}");
            }
        }
    }
}
