//! Defines what a search may try: parameters, the conditions between them, and the configs that they allow.
//!
//! A space is never listed. A [`Config`] is a vector of levels, one for each parameter; everything else (settings,
//! index, neighbours, the walk over all configs) is computed from it when it is asked for.

mod around;
mod build;
mod count;
mod expression;
mod left;
mod memory_order;
mod parameter;
mod parts;
mod permutation;
mod plan;
mod rules;
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
pub use value::{AS_IT_IS, Value};
pub use walk::{Advance, Walk};

use plan::{Plan, Slots};

/// One setting for every active parameter, as levels.
///
/// Configs come from a [`Space`] and mean something only together with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config {
    levels: Box<[u32]>,
}

/// The level of a parameter that is not active.
const INACTIVE: u32 = u32::MAX;

/// The level of a parameter that is left as the job has it.
const UNSET: u32 = u32::MAX - 1;

impl Config {
    /// The level of each parameter, in the order of the space; `None` where it is not active.
    pub fn levels(&self) -> impl ExactSizeIterator<Item = Option<u32>> + '_ {
        self.levels.iter().map(|&level| (level < UNSET).then_some(level))
    }

    /// Whether it leaves parameters as the job has them. Such a config belongs to no space; see [`Space::as_it_is`].
    pub fn is_as_it_is(&self) -> bool {
        self.levels.contains(&UNSET)
    }

    /// The level of one parameter; `None` when it is not active.
    pub fn level(&self, parameter: usize) -> Option<u32> {
        self.levels.get(parameter).copied().filter(|&level| level < UNSET)
    }
}

/// A value that is computed from others and not searched.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Derived {
    name: String,
    expression: Expression,
}

impl Derived {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the expression that it is computed by.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }
}

type Predicate = Arc<dyn Fn(&Config) -> bool + Send + Sync>;

/// The set of all configs that may be tried.
///
/// ```
/// use gputune::model::space::{Expression, Parameter, Space};
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
    /// An address that tells this space from all others while results about it are cached.
    identity: Arc<()>,
}

/// Results about a space that take long to find, cached once they are known.
#[derive(Default)]
struct Found {
    outlook: OnceLock<rules::Outlook>,
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
    /// The name is that of a derived value, which cannot be chosen.
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
        /// The value that was asked for.
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
    /// Makes a space of independent parameters; [`builder`](Self::builder) adds derived values and rules.
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

    /// Restricts the space to the configs for which the function returns true.
    #[must_use]
    pub fn restricted(mut self, belongs: impl Fn(&Config) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Arc::new(belongs));
        // The function does not change what the rules leave, so that result is kept.
        self.found = Found { outlook: self.found.outlook, ..Found::default() };
        self.identity = Arc::default();
        self
    }

    /// Returns the space in which the `closed` parameters have only their first setting. Its configs are configs of
    /// this space.
    ///
    /// # Errors
    /// The reduced space cannot be built. Rules are not a reason: a space whose rules leave nothing can be built.
    pub fn with_first_settings(&self, closed: &[&str]) -> Result<Self, SpaceError> {
        let is_closed = |parameter: &Parameter| closed.contains(&parameter.name());
        let kept = |parameter: &Parameter| if is_closed(parameter) { parameter.only(0) } else { parameter.clone() };
        let builder = self.parameters.iter().map(kept).fold(Self::builder(), SpaceBuilder::parameter);
        let derived = self.derived.iter().cloned();
        let builder = derived.fold(builder, |builder, value| builder.derive(value.name, value.expression));
        let mut space = self.rules.iter().cloned().fold(builder, SpaceBuilder::rule).build()?;
        space.only.clone_from(&self.only);
        Ok(space)
    }

    /// Returns an address that no other space has while it is kept: spaces cannot be copied or changed.
    pub(crate) fn identity(&self) -> &Arc<()> {
        &self.identity
    }

    /// The parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Whether one config can follow another in a process that trains: all that differs may change there.
    pub fn may_follow(&self, config: &Config, last: &Config) -> bool {
        let fixed = self.parameters.iter().enumerate().filter(|(_, parameter)| !parameter.is_live());
        fixed.into_iter().all(|(at, _)| config.level(at) == last.level(at))
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

    /// Returns how many configs there would be without conditions and rules; `None` from 2^126 on.
    pub fn raw_size(&self) -> Option<u128> {
        self.parameters
            .iter()
            .try_fold(1_u128, |size, parameter| size.checked_mul(u128::from(parameter.len())))
            .filter(|&size| size <= 1 << 126)
    }

    /// Returns the config at an index of the raw product, in which the last parameter changes fastest.
    ///
    /// `None` past the end, where a rule forbids the config, and where an inactive parameter is not at its first level
    /// (the same config then stands at another index).
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

    /// Returns the index of a config; the inverse of [`config`](Self::config). `None` in spaces beyond 2^126 configs,
    /// and for a config that sets nothing.
    pub fn index(&self, config: &Config) -> Option<u128> {
        self.raw_size().filter(|_| !config.is_as_it_is())?;
        Some(
            self.parameters.iter().zip(config.levels()).fold(0, |index, (parameter, level)| {
                index * u128::from(parameter.len()) + u128::from(level.unwrap_or(0))
            }),
        )
    }

    /// Returns the config that sets no parameter, so that the job is run as it is. It is not one of the space's
    /// configs, since nothing says which settings the job uses; its own settings are empty.
    pub fn as_it_is(&self) -> Config {
        Config { levels: vec![UNSET; self.parameters.len()].into() }
    }

    /// Returns the config that sets these parameters and leaves the others as the job has them. If it leaves none, it
    /// is one of the space's own configs.
    ///
    /// # Errors
    /// As for [`locate`](Self::locate).
    pub fn as_it_is_with(&self, set: &Settings) -> Result<Config, LocateError> {
        let located = self.locate(set)?;
        let levels = located.levels.iter().zip(&self.parameters);
        let kept = levels.map(|(&level, parameter)| match set.get(parameter.name()) {
            None if level != INACTIVE => UNSET,
            _ => level,
        });
        let kept: Vec<u32> = kept.collect();
        Ok(if set.is_empty() { self.as_it_is() } else { Config { levels: kept.into() } })
    }

    /// Whether the config belongs to the space: its levels exist, the active parameters are those that the conditions
    /// demand, and the rules hold.
    pub fn allows(&self, config: &Config) -> bool {
        config.levels.len() == self.parameters.len()
            && !config.is_as_it_is()
            && config
                .levels()
                .zip(&self.parameters)
                .all(|(level, parameter)| level.is_none_or(|level| u64::from(level) < parameter.len()))
            && self.canonical(&config.levels).as_ref() == Some(config)
            && self.is_member(config)
    }

    /// Returns the names and values of a config: active parameters, then derived values.
    pub fn settings(&self, config: &Config) -> Settings {
        if config.is_as_it_is() {
            return self.settings_as_it_is(config);
        }
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

    /// Returns what a config that leaves parameters as the job has them does set, and the derived values that follow
    /// from it.
    fn settings_as_it_is(&self, config: &Config) -> Settings {
        let mut settings = Settings::default();
        for (parameter, level) in self.parameters.iter().zip(config.levels()) {
            if let Some(level) = level {
                settings.push(parameter.name(), parameter.value(level));
            }
        }
        for derived in &self.derived {
            if let Ok(value) = derived.expression.value(|name| settings.get(name)) {
                settings.push(derived.name(), value);
            }
        }
        settings
    }

    /// Returns the config that settings name. An active parameter that they leave out takes its first setting.
    ///
    /// # Errors
    /// The settings use a name or a value that the space does not have, set an inactive parameter, or break a rule.
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

    /// Whether a config has a level for each parameter, and none that a parameter lacks: it may be one of this space.
    pub(crate) fn has_levels_of(&self, config: &Config) -> bool {
        let is_one = |(&level, parameter): (&u32, &Parameter)| level >= UNSET || u64::from(level) < parameter.len();
        config.levels.len() == self.parameters.len() && config.levels.iter().zip(&self.parameters).all(is_one)
    }

    /// Returns the allowed config with these levels, one for each parameter. Levels of inactive parameters are ignored.
    pub(crate) fn with_levels(&self, levels: &[u32]) -> Option<Config> {
        let exist = levels.len() == self.parameters.len()
            && levels
                .iter()
                .zip(&self.parameters)
                .all(|(&level, parameter)| level == INACTIVE || u64::from(level) < parameter.len());
        exist.then(|| self.canonical(levels)).flatten().filter(|config| self.is_member(config))
    }

    /// Returns how many configs there are under the conditions and rules.
    pub fn count(&self) -> Count {
        *self.found.count.get_or_init(|| count::count(self))
    }

    /// Tries all expressions on the first configs.
    ///
    /// # Errors
    /// The first expression that cannot be evaluated, with its owner and the settings.
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
