//! Finds configs that the rules of a space allow: in order, at random, or around a config. Also counts them.

use super::rules::{Count, Groups};
use super::{Advance, Config, INACTIVE, Permutation, Space, Walk};

/// A space is sparse if fewer than one in this many random indices has an allowed config: a round number.
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
        if groups.is_empty {
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
        let shuffled = |seed| Walk::shuffled(self, seed).advance(&mut FUEL.clone()).found();
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
        self.groups().is_empty || self.only.is_some() && self.count() == Count::Exact(0)
    }

    /// Returns the number of configs under the conditions and rules.
    pub fn count(&self) -> Count {
        let count = || if self.only.is_some() { count_restricted(self) } else { self.groups().count(self) };
        *self.found.count.get_or_init(count)
    }

    /// Returns true if all groups of connected parameters are listed, so that walks meet no dead ends of rules.
    pub(crate) fn is_listed(&self) -> bool {
        self.groups().are_listed()
    }

    /// Returns at most `most` random configs; each config has the same probability. Fewer if bounded work finds no more.
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
        /// A round number: a space at the limit has 64 allowed configs among this many, give or take 8.
        const TRIES: u128 = 4096;
        let order = Permutation::new(raw, 0);
        let allowed = (0..TRIES).filter_map(|place| self.config(order.at(place)?));
        (allowed.count() as u128) < TRIES / SPARSE
    }

    pub(super) fn groups(&self) -> &Groups {
        self.found.groups.get_or_init(|| Groups::of(self))
    }

    /// Returns the other levels of an active parameter, at most `reach` steps away if it is a number; nearest first.
    fn levels_around(&self, config: &Config, parameter: usize, reach: u32) -> Vec<u32> {
        let Some((knob, level)) = self.parameters.get(parameter).zip(config.level(parameter)) else {
            return Vec::new();
        };
        let count = u32::try_from(knob.len()).unwrap_or(INACTIVE);
        if knob.is_ordinal() {
            (1..=reach.min(count))
                .flat_map(|step| [level.checked_add(step), level.checked_sub(step)])
                .flatten()
                .filter(|&other| other < count)
                .collect()
        } else {
            (0..count).filter(|&other| other != level).collect()
        }
    }

    /// Returns the allowed configs that differ from `config` in one parameter, by at most `reach` steps if it is a number, or in
    /// any other setting of a string or boolean. The nearest configs come first, larger before smaller.
    ///
    /// A parameter that becomes inactive is dropped; a parameter that becomes active starts at its first setting. A forbidden
    /// config is replaced by the nearest config with other parameters adjusted, such as `tp` for `dp` under `dp * tp == 64`.
    pub fn moves(&self, config: &Config, parameter: usize, reach: u32) -> Vec<Config> {
        let moved = |level| self.with_level(config, parameter, level).or_else(|| self.detour(config, parameter, level));
        self.levels_around(config, parameter, reach).into_iter().filter_map(moved).collect()
    }

    /// Finds an allowed config in which one parameter has another level and the rest changes as little as the rules demand.
    /// `None` if bounded work finds no such config.
    pub(crate) fn detour(&self, config: &Config, parameter: usize, level: u32) -> Option<Config> {
        /// Settings tried before giving up: a round number, as a bound on the time for one detour.
        const FUEL: u64 = 400;
        self.parameters.get(parameter).filter(|knob| u64::from(level) < knob.len() && !config.is_as_it_is())?;
        if !self.groups().is_tied(parameter) {
            return None;
        }
        let found = Walk::near(self, config, parameter, level).advance(&mut FUEL.clone()).found()?;
        (found.level(parameter) == Some(level) && found != *config).then_some(found)
    }

    /// Returns the allowed config in which one parameter has another level.
    pub fn with_level(&self, config: &Config, parameter: usize, level: u32) -> Option<Config> {
        self.parameters.get(parameter).filter(|knob| u64::from(level) < knob.len() && !config.is_as_it_is())?;
        let mut levels: Vec<u32> = config.levels().map(|level| level.unwrap_or(0)).collect();
        levels[parameter] = level;
        let changed = self.canonical(&levels)?;
        (changed.level(parameter).is_some() && self.is_member(&changed)).then_some(changed)
    }
}

fn count_restricted(space: &Space) -> Count {
    /// Settings that the walk tries: a round number, as a bound on time.
    const FUEL: u64 = 150_000;
    let (mut walk, mut fuel, mut found) = (Walk::new(space), FUEL, 0);
    loop {
        match walk.advance(&mut fuel) {
            Advance::Found(_) => found += 1,
            Advance::End => return Count::Exact(found),
            Advance::OutOfFuel => return Count::Unknown,
        }
    }
}
