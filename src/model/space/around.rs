//! Finds the configs around a config: a few steps away in one parameter, with other parameters adjusted if rules demand it.

use super::{Advance, Config, INACTIVE, Space, Walk};

impl Space {
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
        let mut fuel = FUEL;
        match Walk::near(self, config, parameter, level).advance(&mut fuel) {
            Advance::Found(found) => (found.level(parameter) == Some(level) && found != *config).then_some(found),
            Advance::End | Advance::OutOfFuel => None,
        }
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
