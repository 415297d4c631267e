//! What may be tried: parameters, the conditions between them, and the configs that they allow.
//!
//! A space is never listed. A [`Config`] is a vector of levels, one for each parameter; everything else (settings,
//! index, neighbours, the walk over all configs) is computed from it when it is asked for.

mod build;
mod count;
mod expression;
mod memory_order;
mod parameter;
mod parts;
mod permutation;
mod plan;
mod settings;
mod value;
mod walk;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

pub use build::{Owner, SpaceBuilder, SpaceError};
pub use count::Count;
pub use expression::{Expression, ExpressionError, FUNCTIONS};
pub use parameter::{MemoryRole, Parameter, Role, Shape};
pub use permutation::Permutation;
pub use settings::Settings;
pub use value::Value;
pub use walk::{Advance, Walk};

use plan::{Plan, Slots};

/// One setting for every active parameter, as levels.
///
/// Configs come from a [`Space`] and mean something only together with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Config {
    levels: Box<[u32]>,
}

/// The level of a parameter that is not active.
const INACTIVE: u32 = u32::MAX;

impl Config {
    /// The level of each parameter, in the order of the space; `None` where it is not active.
    pub fn levels(&self) -> impl ExactSizeIterator<Item = Option<u32>> + '_ {
        self.levels.iter().map(|&level| (level != INACTIVE).then_some(level))
    }

    /// The level of one parameter; `None` when it is not active.
    pub fn level(&self, parameter: usize) -> Option<u32> {
        self.levels.get(parameter).copied().filter(|&level| level != INACTIVE)
    }
}

/// A value that is computed from others and not searched.
#[derive(Debug, Serialize, Deserialize)]
pub struct Derived {
    name: String,
    expression: Expression,
}

impl Derived {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is computed by.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }
}

type Predicate = Arc<dyn Fn(&Config) -> bool + Send + Sync>;

/// What may be tried.
///
/// ```
/// use gputune::space::{Expression, Parameter, Space};
///
/// let space = Space::builder()
///     .parameter(Parameter::powers_of_two("batch_size", 8, 64))
///     .parameter(Parameter::range("workers", 0, 4, 2))
///     .parameter(Parameter::values("prefetch", [2, 4]).when(Expression::parse("workers > 0")?))
///     .derive("accumulation", Expression::parse("64 / batch_size")?)
///     .rule(Expression::parse("batch_size * workers <= 128")?)
///     .build()?;
/// assert_eq!(space.count().to_string(), "18");
/// let config = space.first().expect("the rules allow something");
/// assert_eq!(space.settings(&config).line(), "batch_size=8 workers=0 accumulation=8");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Space {
    parameters: Vec<Parameter>,
    derived: Vec<Derived>,
    rules: Vec<Expression>,
    only: Option<Predicate>,
    /// Slot of each name: parameters first, derived values behind them.
    slots: HashMap<String, usize>,
    plan: Plan,
    found: Found,
    /// Shared with nothing but what was worked out about this space.
    identity: Arc<()>,
}

/// What takes long to find out about a space, once it is known.
#[derive(Default)]
struct Found {
    count: OnceLock<Count>,
    first: OnceLock<Option<Config>>,
}

/// Why settings do not name a config of the space.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LocateError {
    /// No parameter has this name.
    #[error("the space has no parameter `{name}`")]
    UnknownName {
        /// The name.
        name: String,
    },
    /// The name is computed, so it cannot be chosen.
    #[error("`{name}` is derived from other parameters and cannot be set")]
    Derived {
        /// The name.
        name: String,
    },
    /// The parameter has no such setting.
    #[error("`{name}` has no setting {value}; it has {settings}")]
    UnknownValue {
        /// The parameter.
        name: String,
        /// The value that it was to have.
        value: Value,
        /// Its settings, shortened.
        settings: String,
    },
    /// The parameter is not active under the other settings.
    #[error("`{name}` is not active here: its condition `{condition}` does not hold")]
    Inactive {
        /// The parameter.
        name: String,
        /// Its condition.
        condition: String,
    },
    /// A rule forbids the config.
    #[error("the rule `{rule}` forbids it")]
    Forbidden {
        /// The rule, as it was written.
        rule: String,
    },
}

impl Space {
    /// A space of independent parameters; [`builder`](Self::builder) adds derived values and rules.
    ///
    /// # Errors
    /// A parameter without settings, with too many, with one twice or with an unusable name; a condition on an
    /// unknown name or in a circle.
    pub fn new(parameters: impl IntoIterator<Item = Parameter>) -> Result<Self, SpaceError> {
        parameters.into_iter().fold(Self::builder(), SpaceBuilder::parameter).build()
    }

    /// Starts a space with derived values or rules.
    pub fn builder() -> SpaceBuilder {
        SpaceBuilder::default()
    }

    /// The same space with only the configs for which the function says so.
    #[must_use]
    pub fn restricted(mut self, belongs: impl Fn(&Config) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Arc::new(belongs));
        self.found = Found::default();
        self.identity = Arc::default();
        self
    }

    /// What no other space has, as long as it is kept: spaces cannot be copied, nor changed.
    pub(crate) fn identity(&self) -> &Arc<()> {
        &self.identity
    }

    /// The parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The derived values, in order.
    pub fn derived(&self) -> &[Derived] {
        &self.derived
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Expression] {
        &self.rules
    }

    /// The place of a parameter in the order of the space.
    pub fn parameter_index(&self, name: &str) -> Option<usize> {
        self.slots.get(name).copied().filter(|&slot| slot < self.parameters.len())
    }

    /// How many configs there would be without conditions and rules; `None` from 2^126 on.
    pub fn raw_size(&self) -> Option<u128> {
        self.parameters
            .iter()
            .try_fold(1_u128, |size, parameter| size.checked_mul(u128::from(parameter.len())))
            .filter(|&size| size <= 1 << 126)
    }

    /// The config at an index of the raw product, the last parameter counting fastest.
    ///
    /// `None` past the end, where a rule forbids the config, and where an inactive parameter is off its first level
    /// (the same config stands at another index).
    pub fn config(&self, index: u128) -> Option<Config> {
        let mut rest = index;
        let mut levels = vec![0; self.parameters.len()];
        for (level, parameter) in levels.iter_mut().zip(&self.parameters).rev() {
            let count = u128::from(parameter.len());
            *level = u32::try_from(rest % count).ok()?;
            rest /= count;
        }
        if rest > 0 {
            return None;
        }
        let config = self.canonical(&levels)?;
        let canonical = levels.iter().zip(&config.levels).all(|(&raw, &level)| level != INACTIVE || raw == 0);
        (canonical && self.is_member(&config)).then_some(config)
    }

    /// The index of a config; the inverse of [`config`](Self::config). `None` in spaces beyond 2^126 configs.
    pub fn index(&self, config: &Config) -> Option<u128> {
        self.raw_size()?;
        Some(
            self.parameters.iter().zip(config.levels()).fold(0, |index, (parameter, level)| {
                index * u128::from(parameter.len()) + u128::from(level.unwrap_or(0))
            }),
        )
    }

    /// Whether the config belongs to the space: its levels exist, activity is as the conditions say, rules hold.
    pub fn allows(&self, config: &Config) -> bool {
        config.levels.len() == self.parameters.len()
            && config
                .levels()
                .zip(&self.parameters)
                .all(|(level, parameter)| level.is_none_or(|level| u64::from(level) < parameter.len()))
            && self.canonical(&config.levels).as_ref() == Some(config)
            && self.is_member(config)
    }

    /// Names and values of a config: active parameters, then derived values.
    pub fn settings(&self, config: &Config) -> Settings {
        let mut slots = Slots::new(self);
        let mut settings = Settings::default();
        self.plan.run(self, &mut slots, &config.levels);
        let names = self.parameters.iter().map(Parameter::name).chain(self.derived.iter().map(Derived::name));
        for (name, value) in names.zip(slots.values) {
            if let Some(value) = value {
                settings.push(name, value);
            }
        }
        settings
    }

    /// The config that settings name. An active parameter that they leave out takes its first setting.
    ///
    /// # Errors
    /// A name or a value that the space does not have, a parameter that is not active, a rule that forbids it.
    pub fn locate(&self, settings: &Settings) -> Result<Config, LocateError> {
        let mut levels = vec![0; self.parameters.len()];
        for (name, value) in settings.iter() {
            let Some(&slot) = self.slots.get(name) else {
                return Err(LocateError::UnknownName { name: name.to_owned() });
            };
            let Some(parameter) = self.parameters.get(slot) else {
                return Err(LocateError::Derived { name: name.to_owned() });
            };
            levels[slot] = parameter.level(value).ok_or_else(|| LocateError::UnknownValue {
                name: name.to_owned(),
                value: value.clone(),
                settings: parameter.summary(),
            })?;
        }
        let mut slots = Slots::new(self);
        let failed = self.plan.run(self, &mut slots, &levels);
        for (slot, parameter) in self.parameters.iter().enumerate() {
            if slots.levels[slot] == INACTIVE && settings.get(parameter.name()).is_some() {
                return Err(LocateError::Inactive {
                    name: parameter.name().to_owned(),
                    condition: parameter.condition().map(|when| when.text().to_owned()).unwrap_or_default(),
                });
            }
        }
        let config = slots.into_config();
        match failed {
            Some(rule) => Err(LocateError::Forbidden { rule }),
            None if !self.is_member(&config) => Err(LocateError::Forbidden { rule: "listed configs only".to_owned() }),
            None => Ok(config),
        }
    }

    /// The first config in the order of the walk, if the rules allow any that bounded work can find.
    pub fn first(&self) -> Option<Config> {
        self.found.first.get_or_init(|| self.find_first()).clone()
    }

    fn find_first(&self) -> Option<Config> {
        const FUEL: u64 = 200_000;
        let mut fuel = FUEL;
        if let Advance::Found(config) = Walk::new(self).advance(&mut fuel) {
            return Some(config);
        }
        (0..4).find_map(|seed| {
            let mut fuel = FUEL / 4;
            match Walk::shuffled(self, seed).advance(&mut fuel) {
                Advance::Found(config) => Some(config),
                Advance::End | Advance::OutOfFuel => None,
            }
        })
    }

    /// The allowed configs that differ in one parameter by one step: the next smaller and larger setting of a number,
    /// every other setting of a text or boolean.
    ///
    /// What a change makes inactive is dropped; what it makes active starts at its first setting.
    pub fn neighbours(&self, config: &Config) -> Vec<Config> {
        (0..self.parameters.len()).flat_map(|parameter| self.variations(config, parameter, 1)).collect()
    }

    /// The allowed configs that differ from `config` in one parameter, by at most `reach` steps where it is a number;
    /// nearest first, larger before smaller.
    pub fn variations(&self, config: &Config, parameter: usize, reach: u32) -> Vec<Config> {
        let Some((knob, level)) = self.parameters.get(parameter).zip(config.level(parameter)) else {
            return Vec::new();
        };
        let count = u32::try_from(knob.len()).unwrap_or(INACTIVE);
        let candidates: Vec<u32> = if knob.is_ordinal() {
            (1..=reach.min(count))
                .flat_map(|step| [level.checked_add(step), level.checked_sub(step)])
                .flatten()
                .filter(|&other| other < count)
                .collect()
        } else {
            (0..count).filter(|&other| other != level).collect()
        };
        candidates.into_iter().filter_map(|other| self.with_level(config, parameter, other)).collect()
    }

    /// The allowed config in which one parameter has another level.
    pub fn with_level(&self, config: &Config, parameter: usize, level: u32) -> Option<Config> {
        self.parameters.get(parameter).filter(|knob| u64::from(level) < knob.len())?;
        let mut levels: Vec<u32> = config.levels().map(|level| level.unwrap_or(0)).collect();
        levels[parameter] = level;
        let changed = self.canonical(&levels)?;
        (changed.level(parameter).is_some() && self.is_member(&changed)).then_some(changed)
    }

    /// The allowed config with these levels, one for each parameter; those of parameters that are not active do not count.
    pub(crate) fn with_levels(&self, levels: &[u32]) -> Option<Config> {
        let exist = levels.len() == self.parameters.len()
            && levels.iter().zip(&self.parameters).all(|(&level, parameter)| u64::from(level) < parameter.len());
        exist.then(|| self.canonical(levels)).flatten().filter(|config| self.is_member(config))
    }

    /// How many configs there are, conditions and rules considered.
    pub fn count(&self) -> Count {
        *self.found.count.get_or_init(|| count::count(self))
    }

    /// The first expression that cannot be evaluated among the first configs, with the settings under which.
    ///
    /// # Errors
    /// That expression, with its owner.
    pub fn try_expressions(&self) -> Result<(), SpaceError> {
        build::try_expressions(self)
    }

    fn canonical(&self, levels: &[u32]) -> Option<Config> {
        let mut slots = Slots::new(self);
        self.plan.run(self, &mut slots, levels).is_none().then(|| slots.into_config())
    }

    fn is_member(&self, config: &Config) -> bool {
        self.only.as_ref().is_none_or(|only| only(config))
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space")
            .field("parameters", &self.parameters)
            .field("derived", &self.derived)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
