//! Finds configs that the rules of a space allow, in order or at random, and proves that a space is empty.

use super::rules::Groups;
use super::{Advance, Config, Count, Permutation, Space, Walk};

/// If fewer than one of this many random indices meet an allowed config, a space is sparse: a round number.
const SPARSE: u128 = 64;

impl Space {
    /// Returns the first config in the order of the walk, or any allowed config if bounded work cannot find the first.
    ///
    /// `None` does not prove that the space is empty; [`is_empty`](Self::is_empty) does.
    pub fn first(&self) -> Option<Config> {
        self.found.first.get_or_init(|| self.find_first()).clone()
    }

    fn find_first(&self) -> Option<Config> {
        /// Settings that walks may try, and random draws after them: round numbers, as bounds on time.
        const FUEL: u64 = 20_000;
        const DRAWS: usize = 8;
        let groups = self.groups();
        if groups.is_empty() {
            return None;
        }
        if let Some(first) = groups.at_shares(self, &mut |_| 0.0).and_then(|levels| self.with_levels(&levels)) {
            return Some(first);
        }
        let mut walk = Walk::new(self);
        match walk.advance(&mut FUEL.clone()) {
            Advance::Found(config) => return Some(config),
            Advance::End => return None,
            Advance::OutOfFuel => {}
        }
        let shuffled = |seed| match Walk::shuffled(self, seed).advance(&mut FUEL.clone()) {
            Advance::Found(config) => Some(config),
            Advance::End | Advance::OutOfFuel => None,
        };
        self.draws(0, DRAWS).into_iter().next().or_else(|| (0..4).find_map(shuffled))
    }

    /// Returns true if bounded work proves that the rules allow no config.
    ///
    /// ```
    /// use gputune::model::space::{Expression, Parameter, Space};
    ///
    /// let workers = Parameter::range("workers", 0, 16, 1);
    /// let space = Space::builder().parameter(workers).rule(Expression::parse("workers > 20")?).build()?;
    /// assert!(space.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.groups().is_empty() || self.only.is_some() && self.count() == Count::Exact(0)
    }

    /// Returns true if all groups of connected parameters are listed, so that walks meet no dead ends of rules.
    pub(crate) fn is_listed(&self) -> bool {
        self.groups().are_listed()
    }

    /// Returns at most `most` random configs, as [`draw`](Self::draw) does; drawing many at once is quicker.
    pub fn draws(&self, seed: u64, most: usize) -> Vec<Config> {
        let drawn = self.groups().draws(self, seed, most);
        drawn.iter().filter_map(|levels| self.with_levels(levels)).collect()
    }

    /// Returns true if a random index of the raw product seldom meets an allowed config.
    pub(crate) fn is_sparse(&self) -> bool {
        *self.found.is_sparse.get_or_init(|| {
            let Some(raw) = self.raw_size() else { return true };
            match self.count() {
                Count::Exact(count) => count.saturating_mul(SPARSE) < raw,
                Count::Unknown => self.meets_few_of(raw),
            }
        })
    }

    fn meets_few_of(&self, raw: u128) -> bool {
        /// A round number: a space at the limit has 64 allowed configs among so many, give or take 8.
        const TRIES: u128 = 4096;
        let order = Permutation::new(raw, 0);
        let allowed = (0..TRIES).filter_map(|place| self.config(order.at(place)?));
        (allowed.count() as u128) < TRIES / SPARSE
    }

    /// Draws a random config; each has the same probability.
    ///
    /// `None` if bounded work finds no config.
    pub fn draw(&self, seed: u64) -> Option<Config> {
        self.draws(seed, 1).pop()
    }

    pub(super) fn groups(&self) -> &Groups {
        self.found.groups.get_or_init(|| Groups::of(self))
    }
}
