//! Defines what a search may try: parameters, the conditions between them, and the configs that they allow.
//!
//! A space is never listed. A [`Config`] is a vector of levels, one for each parameter. Everything else (settings, index,
//! neighbours, the walk over all configs) is computed from it on demand.

mod allowed;
mod build;
mod expression;
mod parameter;
pub(super) mod permutation;
mod plan;
mod rules;
mod settings;
mod walk;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

pub use build::{Owner, SpaceBuilder, SpaceError};
pub use expression::{Expression, ExpressionError, FUNCTIONS};
pub use parameter::{MemoryRole, Parameter, Role, Shape};
pub(crate) use permutation::Draws;
pub use permutation::Permutation;
pub use rules::Count;
pub use settings::{AS_IT_IS, Settings, Value};
pub use walk::{Advance, Walk};

use plan::{Graph, Plan, Slots};

/// One setting for every active parameter, as levels.
///
/// Configs come from a [`Space`] and have a meaning only together with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config {
    levels: Box<[u32]>,
}

/// The level of a parameter that is not active.
const INACTIVE: u32 = u32::MAX;

/// The level of a parameter that is not set, so that the job's own setting applies.
const UNSET: u32 = u32::MAX - 1;

impl Config {
    /// Returns the level of each parameter, in the order of the space; `None` if it is inactive or not set.
    pub fn levels(&self) -> impl ExactSizeIterator<Item = Option<u32>> + '_ {
        self.levels.iter().map(|&level| (level < UNSET).then_some(level))
    }

    /// Returns true if it leaves a parameter unset. Such a config belongs to no space; see [`Space::as_it_is`].
    pub fn is_as_it_is(&self) -> bool {
        self.levels.contains(&UNSET)
    }

    /// Returns the level of one parameter; `None` if it is inactive or not set.
    pub fn level(&self, parameter: usize) -> Option<u32> {
        self.levels.get(parameter).copied().filter(|&level| level < UNSET)
    }
}

/// A value that is computed from other values and not searched.
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

    /// Returns the expression that computes it.
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
/// let config = space.first().expect("the rules allow a config");
/// assert_eq!(space.settings(&config).line(), "batch_size=8 workers=0 accumulation=8");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A serialised space has the parameters, derived values and rules, but no restriction by a function.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "SpaceBuilder")]
pub struct Space {
    parameters: Vec<Parameter>,
    derived: Vec<Derived>,
    rules: Vec<Expression>,
    #[serde(skip)]
    only: Option<Predicate>,
    /// Slot of each name: parameters first, then derived values.
    #[serde(skip)]
    slots: HashMap<String, usize>,
    #[serde(skip)]
    graph: Graph,
    #[serde(skip)]
    plan: Plan,
    #[serde(skip)]
    found: Found,
    /// A unique address that identifies this space in caches of results about it.
    #[serde(skip)]
    identity: Arc<()>,
}

/// Results about a space that take long to find, cached once found.
#[derive(Default)]
struct Found {
    groups: OnceLock<rules::Groups>,
    count: OnceLock<Count>,
    is_sparse: OnceLock<bool>,
    first: OnceLock<Option<Config>>,
}

/// The error for settings that do not name a config of the space.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LocateError {
    /// No parameter has this name.
    #[error("the space has no parameter `{0}`")]
    UnknownName(String),
    /// The name belongs to a derived value, which cannot be chosen.
    #[error("`{0}` is derived from other parameters and cannot be set")]
    Derived(String),
    /// The parameter has no such setting.
    #[error("`{name}` has no setting {value}; it has {settings}")]
    UnknownValue {
        /// The parameter.
        name: String,
        /// The requested value.
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
    #[error("the rule `{0}` forbids it")]
    Forbidden(String),
}

impl Space {
    /// Makes a space of independent parameters; [`builder`](Self::builder) adds derived values and rules.
    ///
    /// # Errors
    /// A parameter has no settings, too many, a duplicate setting or an unusable name; or a condition uses an unknown name
    /// or is circular.
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
        // The function does not change which configs the rules allow, so the groups are kept.
        self.found = Found { groups: self.found.groups, ..Found::default() };
        self.identity = Arc::default();
        self
    }

    /// Returns the space in which some parameters have only one of their settings: the one at the level that `level` returns. If
    /// `level` returns 0 or `None` for each parameter, its configs are also of this space.
    ///
    /// # Errors
    /// The reduced space cannot be built. Rules that forbid every config are no error.
    pub fn with_only(&self, level: impl Fn(&Parameter) -> Option<u32>) -> Result<Self, SpaceError> {
        let kept =
            |parameter: &Parameter| level(parameter).map_or_else(|| parameter.clone(), |level| parameter.only(level));
        let parameters = self.parameters.iter().map(kept).collect();
        let builder = SpaceBuilder { parameters, derived: self.derived.clone(), rules: self.rules.clone() };
        let mut space = builder.build()?;
        space.only.clone_from(&self.only);
        Ok(space)
    }

    /// Returns an address that is unique to this space while it is kept; spaces cannot be copied or changed.
    pub(crate) fn identity(&self) -> &Arc<()> {
        &self.identity
    }

    /// Returns the parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns true if one config can follow another in a running training process: only live parameters differ.
    pub fn may_follow(&self, config: &Config, last: &Config) -> bool {
        let fixed = self.parameters.iter().enumerate().filter(|(_, parameter)| !parameter.is_live());
        fixed.into_iter().all(|(at, _)| config.level(at) == last.level(at))
    }

    /// Returns the derived values, in order.
    pub fn derived(&self) -> &[Derived] {
        &self.derived
    }

    /// Returns the rules, in order.
    pub fn rules(&self) -> &[Expression] {
        &self.rules
    }

    /// Returns the position of a parameter in the space.
    pub fn parameter_index(&self, name: &str) -> Option<usize> {
        self.slots.get(name).copied().filter(|&slot| slot < self.parameters.len())
    }

    /// Returns the number of configs without conditions and rules; `None` above 2^126.
    pub fn raw_size(&self) -> Option<u128> {
        self.parameters
            .iter()
            .try_fold(1_u128, |size, parameter| size.checked_mul(u128::from(parameter.len())))
            .filter(|&size| size <= 1 << 126)
    }

    /// Returns the config at an index of the raw product, in which the last parameter changes fastest.
    ///
    /// `None` past the end, if a rule forbids the config, or if an inactive parameter is not at its first level. In the last
    /// case, the same config has another index.
    pub fn config(&self, index: u128) -> Option<Config> {
        let levels = self.raw_levels(index)?;
        let config = self.canonical(&levels)?;
        let canonical = levels.iter().zip(&config.levels).all(|(&raw, &level)| level != INACTIVE || raw == 0);
        (canonical && self.is_member(&config)).then_some(config)
    }

    /// Returns the levels at an index of the raw product; `None` past the end.
    fn raw_levels(&self, index: u128) -> Option<Vec<u32>> {
        let mut rest = index;
        let mut levels = vec![0; self.parameters.len()];
        for (level, parameter) in levels.iter_mut().zip(&self.parameters).rev() {
            let count = u128::from(parameter.len());
            *level = u32::try_from(rest % count).ok()?;
            rest /= count;
        }
        (rest == 0).then_some(levels)
    }

    /// Returns the index of a config; the inverse of [`config`](Self::config). `None` in spaces beyond 2^126 configs, and
    /// for a config with unset parameters.
    pub fn index(&self, config: &Config) -> Option<u128> {
        self.raw_size().filter(|_| !config.is_as_it_is())?;
        Some(
            self.parameters.iter().zip(config.levels()).fold(0, |index, (parameter, level)| {
                index * u128::from(parameter.len()) + u128::from(level.unwrap_or(0))
            }),
        )
    }

    /// Returns the config that sets no parameter: the unmodified job. It is not one of the space's configs, since the job's
    /// settings are unknown; its own settings are empty.
    pub fn as_it_is(&self) -> Config {
        Config { levels: vec![UNSET; self.parameters.len()].into() }
    }

    /// Returns the config that sets only these parameters and keeps the job's own settings for the rest. If it sets all
    /// parameters, it is one of the space's configs.
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

    /// Returns true if the config belongs to the space: its levels exist, its active parameters match the conditions, and
    /// the rules hold.
    pub fn allows(&self, config: &Config) -> bool {
        self.has_levels_of(config)
            && !config.is_as_it_is()
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

    /// Returns the set parameters of a config, and the derived values that follow from them.
    fn settings_as_it_is(&self, config: &Config) -> Settings {
        let mut settings = Settings::default();
        for (parameter, level) in self.parameters.iter().zip(config.levels()) {
            if let Some(level) = level {
                settings.push(parameter.name(), parameter.value(level));
            }
        }
        settings.derive(self);
        settings
    }

    /// Returns the config with these settings. An active parameter without a setting takes its first one.
    ///
    /// # Errors
    /// The settings use a name or a value that the space does not have, set an inactive parameter, or break a rule.
    pub fn locate(&self, settings: &Settings) -> Result<Config, LocateError> {
        let mut levels = vec![0; self.parameters.len()];
        for (name, value) in settings.iter() {
            let Some(&slot) = self.slots.get(name) else {
                return Err(LocateError::UnknownName(name.to_owned()));
            };
            let Some(parameter) = self.parameters.get(slot) else {
                return Err(LocateError::Derived(name.to_owned()));
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
            Some(rule) => Err(LocateError::Forbidden(rule)),
            None if !self.is_member(&config) => Err(LocateError::Forbidden("listed configs only".to_owned())),
            None => Ok(config),
        }
    }

    /// Returns true if each parameter of the config has an existing level, or is inactive or unset.
    pub(crate) fn has_levels_of(&self, config: &Config) -> bool {
        self.has_levels(&config.levels)
    }

    fn has_levels(&self, levels: &[u32]) -> bool {
        let is_one = |(&level, parameter): (&u32, &Parameter)| level >= UNSET || u64::from(level) < parameter.len();
        levels.len() == self.parameters.len() && levels.iter().zip(&self.parameters).all(is_one)
    }

    /// Returns the allowed config with these levels, one for each parameter. Levels of inactive parameters are ignored.
    pub(crate) fn with_levels(&self, levels: &[u32]) -> Option<Config> {
        let exist = self.has_levels(levels) && !levels.contains(&UNSET);
        exist.then(|| self.canonical(levels)).flatten().filter(|config| self.is_member(config))
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
