//! Walks through all allowed configs. Backtracks as soon as a rule fails, or if all further configs need at least as much memory as
//! a config that did not fit.

use super::plan::{Plan, Slots};
use super::rules::Ahead;
use super::{Config, INACTIVE, MemoryRole, Parameter, Permutation, Space};
use crate::model::outcome::Memory;

/// A walk over the allowed configs of a space, in a fixed order and without a list of them.
///
/// Use it as an iterator. If the rules may leave very few configs, use [`advance`](Self::advance), whose work is bounded.
#[derive(Debug)]
pub struct Walk<'s> {
    space: &'s Space,
    plan: Plan,
    orders: Orders,
    slots: Slots,
    ahead: Ahead,
    /// The next index to try in the order of settings, at each depth of the plan.
    next: Vec<u64>,
    depth: Option<usize>,
}

/// The result of a bounded part of a [`Walk`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advance {
    /// The next config.
    Found(Config),
    /// There is no further config.
    End,
    /// The allowed work is done; the walk can continue later.
    OutOfFuel,
}

impl Advance {
    /// Returns the config, if there is one.
    pub fn found(self) -> Option<Config> {
        if let Self::Found(config) = self { Some(config) } else { None }
    }
}

#[derive(Debug)]
enum Orders {
    Ascending,
    /// One permutation for each parameter.
    Shuffled(Vec<Permutation>),
    /// Settings near a config first, with one parameter fixed at one level.
    Near {
        levels: Vec<u32>,
        parameter: usize,
    },
}

/// The result of trying one setting.
enum Step {
    Tried,
    /// All configs with the settings tried so far need too much memory.
    Cut,
    Found(Config),
    End,
}

impl<'s> Walk<'s> {
    /// Walks in the order of the space, the last parameter changing fastest.
    pub fn new(space: &'s Space) -> Self {
        let all: Vec<usize> = (0..space.parameters.len()).collect();
        Self::over(space, &all)
    }

    /// Walks with the first parameter of `order` changing slowest, but each parameter after those that its condition uses.
    ///
    /// `order` must have the index of each parameter; otherwise the configs are incomplete.
    pub fn over(space: &'s Space, order: &[usize]) -> Self {
        let plan = Plan::new(&space.graph, order);
        let ahead = space.groups().ahead(&plan.order);
        let next = vec![0; plan.order.len()];
        Self { space, next, depth: Some(0), plan, orders: Orders::Ascending, slots: Slots::new(space), ahead }
    }

    /// Walks with the settings of each parameter in a random order.
    pub fn shuffled(space: &'s Space, seed: u64) -> Self {
        let orders = space.parameters.iter().enumerate().map(|(at, parameter)| {
            Permutation::new(u128::from(parameter.len()), seed.wrapping_mul(0x9E37_79B9).wrapping_add(at as u64))
        });
        Self { orders: Orders::Shuffled(orders.collect()), ..Self::new(space) }
    }

    /// Walks over configs in which one parameter has a given level. For all other parameters, levels near the level in `config`
    /// come first.
    pub(super) fn near(space: &'s Space, config: &Config, parameter: usize, level: u32) -> Self {
        let others = (0..space.parameters.len()).filter(|&at| at != parameter);
        let order: Vec<usize> = std::iter::once(parameter).chain(others).collect();
        let mut levels: Vec<u32> = config.levels().map(|level| level.unwrap_or(0)).collect();
        levels[parameter] = level;
        Self { orders: Orders::Near { levels, parameter }, ..Self::over(space, &order) }
    }

    /// Moves forwards or backwards, so that this config comes next. Only for walks in ascending order.
    pub(crate) fn seek(&mut self, config: &Config) {
        self.depth = self.plan.order.len().checked_sub(1);
        for depth in 0..self.plan.order.len() {
            let level = config.levels[self.plan.order[depth]];
            let place = if level == INACTIVE { 0 } else { u64::from(level) };
            let is_last = depth + 1 == self.plan.order.len();
            self.next[depth] = if is_last { place } else { place + 1 };
            // The config was allowed before, so no rule fails here.
            let _ = self.plan.assign(self.space, &mut self.slots, depth, level);
            let _ = self.ahead.enter(self.plan.order[depth], level);
        }
    }

    /// Continues to the next config, taking one from `fuel` for each setting tried.
    pub fn advance(&mut self, fuel: &mut u64) -> Advance {
        loop {
            if *fuel == 0 && self.next_setting().is_some() {
                return Advance::OutOfFuel;
            }
            *fuel = fuel.saturating_sub(1);
            match self.step(&[]) {
                Step::Found(config) => return Advance::Found(config),
                Step::End => return Advance::End,
                Step::Tried | Step::Cut => {}
            }
        }
    }

    /// Returns the next config, skipping configs that need as much memory as one of `walls`.
    ///
    /// Returns `None` at the end, or after trying `patience` settings in a row without finding a config. In ascending order,
    /// skipping a wall restarts the count. So a walk from the start gives up no earlier than a walk from a later config.
    pub(crate) fn next_around(&mut self, walls: &[(&Config, Memory)], patience: u64) -> Option<Config> {
        let mut left = patience;
        while left > 0 {
            left -= 1;
            match self.step(walls) {
                Step::Found(config) => return Some(config),
                Step::End => return None,
                Step::Cut if matches!(self.orders, Orders::Ascending) => left = patience,
                Step::Cut | Step::Tried => {}
            }
        }
        None
    }

    /// Leaves exhausted depths. Returns the depth and the level of the next setting; `None` if nothing is left.
    fn next_setting(&mut self) -> Option<(usize, u32)> {
        loop {
            let depth = self.depth?;
            if let Some(level) = self.next_level(depth) {
                return Some((depth, level));
            }
            self.depth = depth.checked_sub(1);
        }
    }

    /// Returns `Some` if all configs with the settings down to `depth` need too much memory. The value is true if the same holds
    /// for all further settings at this depth.
    fn is_behind_wall(&self, walls: &[(&Config, Memory)], depth: usize) -> Option<bool> {
        let known = &self.plan.order[..=depth];
        let is_behind = |failed, memory| self.space.leads_behind(known, &self.slots.levels, failed, memory);
        let (_, memory) = walls.iter().find(|(failed, memory)| is_behind(failed, *memory))?;
        Some(match role(&self.space.parameters[known[depth]], *memory) {
            MemoryRole::Same => true,
            MemoryRole::Grows => matches!(self.orders, Orders::Ascending),
            MemoryRole::Unknown => false,
        })
    }

    fn step(&mut self, walls: &[(&Config, Memory)]) -> Step {
        let Some((depth, level)) = self.next_setting() else { return Step::End };
        self.next[depth] += 1;
        let leads = self.ahead.enter(self.plan.order[depth], level);
        if !leads || self.plan.assign(self.space, &mut self.slots, depth, level).is_err() {
            return Step::Tried;
        }
        if let Some(rest_too) = self.is_behind_wall(walls, depth) {
            if rest_too {
                self.next[depth] = u64::MAX;
            }
            return Step::Cut;
        }
        if depth + 1 < self.plan.order.len() {
            self.next[depth + 1] = 0;
            self.depth = Some(depth + 1);
            return Step::Tried;
        }
        let config = self.slots.config();
        if self.space.is_member(&config) { Step::Found(config) } else { Step::Tried }
    }

    fn next_level(&self, depth: usize) -> Option<u32> {
        let parameter = *self.plan.order.get(depth)?;
        let place = self.next[depth];
        if !self.plan.is_active(self.space, &self.slots, depth) {
            return (place == 0).then_some(INACTIVE);
        }
        let len = self.space.parameters[parameter].len();
        match &self.orders {
            Orders::Shuffled(orders) => u32::try_from(orders[parameter].at(place.into())?).ok(),
            Orders::Ascending => (place < len).then(|| u32::try_from(place).ok())?,
            Orders::Near { levels, parameter: fixed } if parameter == *fixed => {
                (place == 0).then_some(levels[parameter])
            }
            Orders::Near { levels, .. } => {
                (place < len).then(|| u32::try_from(nearest(levels[parameter].into(), place, len)).ok())?
            }
        }
    }
}

impl Space {
    /// Returns true if the parameters show that `candidate` needs at least as much memory as `failed`.
    ///
    /// For device memory, [`Parameter::memory_role`] decides: the candidate must be at least as large in each parameter that
    /// grows memory, and equal in each parameter of unknown effect. For host and shared memory, every number counts as
    /// growing (as workers, prefetch and batch size do), and all other parameters must be equal.
    pub fn needs_as_much_memory(&self, candidate: &Config, failed: &Config, memory: Memory) -> bool {
        self.parameters
            .iter()
            .zip(candidate.levels.iter().zip(&failed.levels))
            .all(|(parameter, (&candidate, &failed))| needs_as_much(role(parameter, memory), candidate, failed))
    }

    /// Returns a key: two configs can be compared by memory only if their keys are equal. The key has the levels that must be
    /// equal, and shows which growing parameters are active.
    pub(crate) fn memory_group(&self, config: &Config, memory: Memory) -> Box<[u32]> {
        let common = |(parameter, &level): (&Parameter, &u32)| match role(parameter, memory) {
            MemoryRole::Same => 0,
            MemoryRole::Grows if level != INACTIVE => 0,
            _ => level,
        };
        self.parameters.iter().zip(&config.levels).map(common).collect()
    }

    /// Returns true if every config with these levels of the `known` parameters needs at least as much memory as `failed`.
    fn leads_behind(&self, known: &[usize], levels: &[u32], failed: &Config, memory: Memory) -> bool {
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

/// Returns the number at `place` if all numbers below `len` are sorted by distance to `centre`, the smaller first if equally far.
fn nearest(centre: u64, place: u64, len: u64) -> u64 {
    let both = 2 * centre.min(len - 1 - centre);
    match place {
        _ if place > both && centre < len / 2 => place,
        _ if place > both => len - 1 - place,
        _ if place % 2 == 1 => centre - place.div_ceil(2),
        _ => centre + place / 2,
    }
}

impl Iterator for Walk<'_> {
    type Item = Config;

    fn next(&mut self) -> Option<Config> {
        self.advance(&mut u64::MAX.clone()).found()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_all_come() {
        for len in 1..9 {
            for centre in 0..len {
                let order: Vec<u64> = (0..len).map(|place| nearest(centre, place, len)).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..len).collect::<Vec<_>>(), "{centre} of {len}: {order:?}");
                let distances: Vec<u64> = order.iter().map(|at| at.abs_diff(centre)).collect();
                assert!(distances.is_sorted(), "{centre} of {len}: {order:?}");
            }
        }
    }

    #[test]
    fn a_larger_batch_needs_more_device_memory_and_fewer_workers_may_need_less_host_memory() {
        let space = Space::new([
            Parameter::powers_of_two("batch_size", 8, 64),
            Parameter::range("workers", 0, 4, 2),
            Parameter::values("precision", ["fp32", "bf16"]),
        ])
        .unwrap();
        let failed = space.with_levels(&[2, 1, 0]).unwrap();
        for (levels, memory, needs_as_much) in [
            ([2, 0, 0], Memory::Device, true),
            ([3, 2, 0], Memory::Device, true),
            ([1, 2, 0], Memory::Device, false),
            // A config with another precision may fit.
            ([3, 2, 1], Memory::Device, false),
            ([2, 2, 0], Memory::Host, true),
            ([3, 0, 0], Memory::Host, false),
        ] {
            let candidate = space.with_levels(&levels).unwrap();
            let needs = space.needs_as_much_memory(&candidate, &failed, memory);
            assert_eq!(needs, needs_as_much, "{levels:?} {memory}");
        }
    }
}
