//! The configs that are known to need too much memory: only those that say more than others.

use std::collections::HashMap;

use crate::objective::Objective;
use crate::outcome::Memory;
use crate::space::{Config, Space};
use crate::trial::History;

/// What did not fit, without what follows from the rest of it.
#[derive(Debug, Clone)]
pub(super) struct Walls<'a> {
    walls: Vec<(&'a Config, Memory)>,
    /// The places of those that can rule out the same configs.
    groups: HashMap<(Memory, Box<[u32]>), Vec<usize>>,
}

impl<'a> Walls<'a> {
    pub(super) fn of(space: &Space, objective: &Objective, history: &'a History) -> Self {
        let failed = history.trials().iter().filter_map(|trial| {
            let memory = objective.lacks_memory(&trial.outcome)?;
            Some((&trial.config, memory))
        });
        let mut walls: Vec<Option<(&Config, Memory)>> = Vec::new();
        let mut groups: HashMap<(Memory, Box<[u32]>), Vec<usize>> = HashMap::new();
        for (config, memory) in failed {
            let group = groups.entry((memory, space.memory_group(config, memory))).or_default();
            let wall_at = |place: &usize| walls.get(*place).copied().flatten().map(|(wall, _)| wall);
            let follows = |wall: &Config| space.needs_as_much_memory(config, wall, memory);
            if group.iter().filter_map(wall_at).any(follows) {
                continue;
            }
            let implied = |wall: &Config| space.needs_as_much_memory(wall, config, memory);
            let (gone, mut kept): (Vec<usize>, Vec<usize>) =
                group.iter().partition(|place| wall_at(place).is_none_or(implied));
            kept.push(walls.len());
            *group = kept;
            gone.into_iter().filter_map(|place| walls.get_mut(place).map(|wall| *wall = None)).for_each(drop);
            walls.push(Some((config, memory)));
        }
        // Places without those that are gone.
        let mut place = 0;
        let moved: Vec<usize> = walls.iter().map(|wall| (place, place += usize::from(wall.is_some())).0).collect();
        for group in groups.values_mut() {
            group.iter_mut().for_each(|at| *at = moved.get(*at).copied().unwrap_or(usize::MAX));
        }
        Self { walls: walls.into_iter().flatten().collect(), groups }
    }

    /// All of them, in the order of the history.
    pub(super) fn all(&self) -> &[(&'a Config, Memory)] {
        &self.walls
    }

    /// Whether a config needs at least as much memory as one of them.
    pub(super) fn rule_out(&self, space: &Space, config: &Config) -> bool {
        /// With so few, comparing with each is faster than looking for the group.
        const FEW: usize = 16;
        let needs = |(wall, memory): &(&Config, Memory)| space.needs_as_much_memory(config, wall, *memory);
        if self.walls.len() <= FEW {
            return self.walls.iter().any(needs);
        }
        [Memory::Device, Memory::Host, Memory::Shared].into_iter().any(|memory| {
            let group = self.groups.get(&(memory, space.memory_group(config, memory)));
            group.into_iter().flatten().filter_map(|&place| self.walls.get(place)).any(needs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::{Failure, Outcome};
    use crate::space::{Expression, MemoryRole, Parameter, Permutation, Walk};
    use crate::trial::{Purpose, Trial};

    fn space() -> Space {
        Space::new([
            Parameter::powers_of_two("batch_size", 8, 256),
            Parameter::range("workers", 0, 3, 1),
            Parameter::range("cache", 1, 3, 1)
                .memory(MemoryRole::Grows)
                .when(Expression::parse("workers > 1").unwrap()),
            Parameter::values("precision", ["fp32", "tf32", "bf16"]),
        ])
        .unwrap()
    }

    #[test]
    fn they_rule_out_what_all_failures_do_and_none_follows_from_another() {
        let space = space();
        let configs: Vec<Config> = Walk::new(&space).collect();
        let kinds = [Memory::Device, Memory::Host, Memory::Shared];
        for (seed, count) in [(1, 3), (2, 12), (3, 40), (4, 130)] {
            let order = Permutation::new(configs.len() as u128, seed);
            let failed: Vec<(&Config, Memory)> = (0..count)
                .map(|at| (&configs[usize::try_from(order.at(at).unwrap()).unwrap()], kinds[at as usize % 3]))
                .collect();
            let history: History = (1..)
                .zip(&failed)
                .map(|(number, &(config, memory))| Trial {
                    number,
                    purpose: Purpose::Search,
                    config: config.clone(),
                    outcome: Outcome::OutOfMemory { memory, failure: Failure::new("full") },
                    elapsed: Duration::ZERO,
                })
                .collect();
            let walls = Walls::of(&space, &Objective::default(), &history);
            assert!(walls.all().len() <= failed.len());
            for config in &configs {
                let by_all = failed.iter().any(|(wall, memory)| space.needs_as_much_memory(config, wall, *memory));
                assert_eq!(walls.rule_out(&space, config), by_all);
            }
            for (at, (wall, memory)) in walls.all().iter().enumerate() {
                let follows = walls.all().iter().enumerate().any(|(other, (from, kind))| {
                    other != at && kind == memory && space.needs_as_much_memory(wall, from, *memory)
                });
                assert!(!follows, "{wall:?}");
            }
        }
    }
}
