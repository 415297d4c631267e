//! All allowed configs one after the other, with dead ends cut as soon as a rule fails.

use super::build::Graph;
use super::plan::{Plan, Slots};
use super::{Config, INACTIVE, MemoryRole, Permutation, Space};
use crate::outcome::Memory;

/// A walk over the allowed configs of a space, in a fixed order and without a list of them.
///
/// It can be an iterator, or be advanced with bounded work where rules may leave very little.
#[derive(Debug)]
pub struct Walk<'s> {
    space: &'s Space,
    plan: Plan,
    orders: Option<Vec<Permutation>>,
    slots: Slots,
    /// Next place to try at each depth of the plan.
    next: Vec<u64>,
    depth: Option<usize>,
}

/// How far a bounded part of a [`Walk`] came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advance {
    /// The next config.
    Found(Config),
    /// There is no further config.
    End,
    /// The allowed work is done; the walk can be advanced again.
    OutOfFuel,
}

/// What trying one setting came to.
enum Step {
    Tried,
    /// Whatever follows needs too much memory.
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

    /// Walks with the first of `order` changing slowest; a parameter still comes behind what its condition depends on.
    ///
    /// `order` must name each parameter of the space, by its place, for whole configs to come.
    pub fn over(space: &'s Space, order: &[usize]) -> Self {
        let plan = Plan::new(&Graph::of(space), order);
        Self { space, next: vec![0; plan.order.len()], depth: Some(0), plan, orders: None, slots: Slots::new(space) }
    }

    /// Walks with the settings of each parameter in a random order.
    pub fn shuffled(space: &'s Space, seed: u64) -> Self {
        let orders = space.parameters.iter().enumerate().map(|(at, parameter)| {
            Permutation::new(u128::from(parameter.len()), seed.wrapping_mul(0x9E37_79B9).wrapping_add(at as u64))
        });
        Self { orders: Some(orders.collect()), ..Self::new(space) }
    }

    /// Goes back or forth to a config, so that it is the next to come. Only for walks that are not shuffled.
    pub(crate) fn seek(&mut self, config: &Config) {
        self.depth = self.plan.order.len().checked_sub(1);
        for depth in 0..self.plan.order.len() {
            let level = config.levels[self.plan.order[depth]];
            let place = if level == INACTIVE { 0 } else { u64::from(level) };
            let is_last = depth + 1 == self.plan.order.len();
            self.next[depth] = if is_last { place } else { place + 1 };
            // What was allowed once is allowed again.
            let _ = self.plan.assign(self.space, &mut self.slots, depth, level);
        }
    }

    /// Goes on to the next config, taking one from `fuel` for each setting tried.
    pub fn advance(&mut self, fuel: &mut u64) -> Advance {
        loop {
            if *fuel == 0 && !self.is_over() {
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

    /// The next config that does not need as much memory as one of `walls`, without walking through those that do.
    ///
    /// `None` at the end, and after `patience` settings in a row that led to no config. In a walk that is not shuffled
    /// walls start the count anew, so that a walk from the start does not give up before one from further on.
    pub(crate) fn next_around(&mut self, walls: &[(&Config, Memory)], patience: u64) -> Option<Config> {
        let mut left = patience;
        while left > 0 {
            left -= 1;
            match self.step(walls) {
                Step::Found(config) => return Some(config),
                Step::End => return None,
                Step::Cut if self.orders.is_none() => left = patience,
                Step::Cut | Step::Tried => {}
            }
        }
        None
    }

    /// Drops exhausted depths; whether nothing is left behind them.
    fn is_over(&mut self) -> bool {
        while let Some(depth) = self.depth {
            if self.next_level(depth).is_some() {
                return false;
            }
            self.depth = depth.checked_sub(1);
        }
        true
    }

    /// Whether all that follows needs too much memory, and if so whether all further settings at this depth do too.
    fn is_behind_wall(&self, walls: &[(&Config, Memory)], depth: usize) -> Option<bool> {
        let known = &self.plan.order[..=depth];
        let is_behind = |failed, memory| self.space.leads_behind(known, &self.slots.levels, failed, memory);
        let (_, memory) = walls.iter().find(|(failed, memory)| is_behind(failed, *memory))?;
        Some(match self.space.memory_role_of(known[depth], *memory) {
            MemoryRole::Same => true,
            MemoryRole::Grows => self.orders.is_none(),
            MemoryRole::Unknown => false,
        })
    }

    /// Tries one setting.
    fn step(&mut self, walls: &[(&Config, Memory)]) -> Step {
        if self.is_over() {
            return Step::End;
        }
        let Some((depth, level)) = self.depth.and_then(|depth| Some((depth, self.next_level(depth)?))) else {
            return Step::End;
        };
        self.next[depth] += 1;
        if self.plan.assign(self.space, &mut self.slots, depth, level).is_err() {
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
        match &self.orders {
            Some(orders) => u32::try_from(orders[parameter].at(place.into())?).ok(),
            None => (place < self.space.parameters[parameter].len()).then(|| u32::try_from(place).ok())?,
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Config;

    fn next(&mut self) -> Option<Config> {
        match self.advance(&mut u64::MAX.clone()) {
            Advance::Found(config) => Some(config),
            Advance::End | Advance::OutOfFuel => None,
        }
    }
}
