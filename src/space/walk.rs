//! All allowed configs one after the other, with dead ends cut as soon as a rule fails.

use super::build::Graph;
use super::plan::{Plan, Slots};
use super::{Config, INACTIVE, Permutation, Space};

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

    /// Goes on to the next config, taking one from `fuel` for each setting tried.
    pub fn advance(&mut self, fuel: &mut u64) -> Advance {
        while let Some(depth) = self.depth {
            let Some(level) = self.next_level(depth) else {
                self.depth = depth.checked_sub(1);
                continue;
            };
            if *fuel == 0 {
                return Advance::OutOfFuel;
            }
            *fuel -= 1;
            self.next[depth] += 1;
            if self.plan.assign(self.space, &mut self.slots, depth, level).is_err() {
                continue;
            }
            if depth + 1 < self.plan.order.len() {
                self.next[depth + 1] = 0;
                self.depth = Some(depth + 1);
                continue;
            }
            let config = self.slots.config();
            if self.space.is_member(&config) {
                return Advance::Found(config);
            }
        }
        Advance::End
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
