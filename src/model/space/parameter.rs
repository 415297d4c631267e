//! One parameter: its name, its ordered settings, its condition, and its effect on memory.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Expression, Value};

/// The settings of a parameter, in order; long ranges are computed, never listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Levels {
    Listed(Vec<Value>),
    Integers { start: i64, step: i64, count: u64 },
    Floats { start: f64, step: f64, count: u64 },
    Powers { first_exponent: u32, count: u64 },
}

/// The effect of a parameter on the memory of a step. It decides which configs an out-of-memory failure rules out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryRole {
    /// A larger value needs at least as much memory.
    Grows,
    /// The value does not matter for device memory.
    Same,
    /// Nothing is known: only configs with the same value are compared.
    Unknown,
}

/// The sequence of a parameter's settings.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape<'p> {
    /// Listed one by one, in no regular order.
    Listed(&'p [Value]),
    /// Whole numbers.
    Integers {
        /// The first.
        first: i64,
        /// The last.
        last: i64,
        /// The difference between one number and the next.
        step: i64,
    },
    /// Numbers.
    Floats {
        /// The first.
        first: f64,
        /// The last.
        last: f64,
        /// The difference between one number and the next.
        step: f64,
    },
    /// Powers of two.
    Powers {
        /// The first.
        first: i64,
        /// The last.
        last: i64,
    },
}

/// The role of a parameter in the model of step time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The number of samples per step.
    Batch,
    /// Processes that load data.
    Workers,
    /// Batches that each worker loads ahead.
    Prefetch,
    /// Threads that compute.
    Threads,
    /// The number format of the computation.
    Precision,
    /// The power limit of a device.
    Power,
    /// The number of devices that train.
    Devices,
    /// The number of batches whose gradients are summed for one update.
    Accumulation,
    /// The number of equal pieces in which a batch is computed, with summed gradients.
    Pieces,
}

impl Role {
    /// Returns true if only a number can have this role.
    pub fn takes_numbers(self) -> bool {
        self != Self::Precision
    }
}

/// One knob of a training step.
///
/// ```
/// use gputune::model::space::Parameter;
///
/// let workers = Parameter::range("workers", 0, 16, 2);
/// assert_eq!(workers.len(), 9);
/// assert_eq!(workers.value(1).to_string(), "2");
/// let precision = Parameter::values("precision", ["fp32", "bf16"]);
/// assert!(!precision.is_ordinal());
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[must_use]
pub struct Parameter {
    name: String,
    levels: Levels,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<Expression>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryRole>,
    #[serde(default)]
    is_batch_size: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    full_precision: Option<Value>,
    /// The fact that reports the applied setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    told_by: Option<String>,
    /// True if the setting can change while a process trains.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_live: bool,
    /// The stated role, which may be "no role" (`Some(None)`); `None` if the role follows from the name.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "stated")]
    role: Option<Option<Role>>,
}

/// Reads a role that is stated in the file, with `null` for "no role".
fn stated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Role>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Parameter {
    /// Makes a parameter with listed settings. Numbers are sorted by size; strings keep the given order.
    pub fn values<V: Into<Value>>(name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        let mut values: Vec<Value> = values.into_iter().map(Into::into).collect();
        if values.iter().all(|value| value.as_f64().is_some()) {
            values.sort_by(|a, b| a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(std::cmp::Ordering::Equal));
        }
        Self::new(name, Levels::Listed(values))
    }

    /// Makes a parameter of the whole numbers from `first` up to `last` in steps of `step`.
    ///
    /// [`Space::new`] rejects an empty range (`last` below `first`, or a step that is not positive).
    ///
    /// [`Space::new`]: super::Space::new
    pub fn range(name: impl Into<String>, first: i64, last: i64, step: i64) -> Self {
        let count =
            if step > 0 && last >= first { (last.abs_diff(first) / step.unsigned_abs()).saturating_add(1) } else { 0 };
        Self::new(name, Levels::Integers { start: first, step, count })
    }

    /// Makes a parameter of the numbers from `first` to `last`; `last` is included if a step meets it up to rounding.
    pub fn float_range(name: impl Into<String>, first: f64, last: f64, step: f64) -> Self {
        let steps = (last - first) / step;
        // Finite, not negative and bounded by the check on the number of settings.
        let count = if step > 0.0 && steps.is_finite() && steps >= 0.0 {
            ((steps * (1.0 + 1e-12) + 1e-9).floor() as u64).saturating_add(1)
        } else {
            0
        };
        Self::new(name, Levels::Floats { start: first, step, count })
    }

    /// Makes a parameter of the powers of two from `low` to `high`, both inclusive.
    pub fn powers_of_two(name: impl Into<String>, low: i64, high: i64) -> Self {
        let bounds = u64::try_from(low.max(1)).ok().zip(u64::try_from(high).ok().filter(|high| *high > 0));
        let (first_exponent, count) = bounds.map_or((0, 0), |(low, high)| {
            let first = low.next_power_of_two().ilog2();
            (first, u64::from((high.ilog2() + 1).saturating_sub(first)))
        });
        Self::new(name, Levels::Powers { first_exponent, count })
    }

    fn new(name: impl Into<String>, levels: Levels) -> Self {
        Self {
            name: name.into(),
            levels,
            when: None,
            memory: None,
            is_batch_size: false,
            full_precision: None,
            told_by: None,
            is_live: false,
            role: None,
        }
    }

    /// Makes the parameter active only if the condition holds.
    pub fn when(mut self, condition: Expression) -> Self {
        self.when = Some(condition);
        self
    }

    /// States the parameter's effect on device memory; see [`memory_role`](Self::memory_role) for the default.
    pub fn memory(mut self, role: MemoryRole) -> Self {
        self.memory = Some(role);
        self
    }

    /// States that the parameter is the number of samples per training step, whatever its name.
    pub fn batch_size(mut self) -> Self {
        self.is_batch_size = true;
        self
    }

    /// States that the parameter changes the numerical results, and gives its value in full precision. The value need not be
    /// one of its settings; see [`numerics`](crate::search::numerics).
    pub fn full_precision(mut self, value: impl Into<Value>) -> Self {
        self.full_precision = Some(value.into());
        self
    }

    /// States the [fact](crate::model::fact) that reports the applied setting, whatever the parameter's name.
    pub fn told_by(mut self, fact: impl Into<String>) -> Self {
        self.told_by = Some(fact.into());
        self
    }

    /// States that the setting can change while a process trains, so one process can probe several configs.
    pub fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// Returns true if the setting can change while a process trains.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Returns the stated fact that reports the applied setting.
    pub fn fact(&self) -> Option<&str> {
        self.told_by.as_deref()
    }

    /// States the role of the parameter in a training step, whatever its name; `None` for no role. A role for numbers has no
    /// effect on settings that are not numbers.
    ///
    /// ```
    /// use gputune::model::space::{Parameter, Role};
    ///
    /// let readers = Parameter::range("readers", 0, 8, 1).plays(Role::Workers);
    /// assert_eq!(readers.role(), Some(Role::Workers));
    /// let threads = Parameter::range("logger_threads", 1, 4, 1).plays(None);
    /// assert_eq!(threads.role(), None);
    /// ```
    pub fn plays(mut self, role: impl Into<Option<Role>>) -> Self {
        self.role = Some(role.into());
        self
    }

    /// Returns the role of the parameter in a training step: the stated role, or else the role that its name suggests.
    pub fn role(&self) -> Option<Role> {
        const DEVICES: &[&str] = &["gpus", "devices", "nodes", "ranks", "world_size"];
        const PRECISIONS: &[&str] = &["precision", "dtype", "autocast"];
        const AMOUNTS: &[(&str, Role)] = &[
            ("worker", Role::Workers),
            ("prefetch", Role::Prefetch),
            ("thread", Role::Threads),
            ("power", Role::Power),
            ("accum", Role::Accumulation),
        ];
        let name = self.name.as_str();
        if let Some(stated) = self.role {
            return stated.filter(|role| self.is_ordinal() || !role.takes_numbers());
        }
        if self.is_batch_size() {
            return self.is_ordinal().then_some(Role::Batch);
        }
        if !self.is_ordinal() {
            let is_amp = name.split(['_', '-', '.']).any(|word| word == "amp");
            return (is_amp || PRECISIONS.iter().any(|word| name.contains(word))).then_some(Role::Precision);
        }
        let amount = AMOUNTS.iter().find(|(word, _)| name.contains(word)).map(|(_, role)| *role);
        amount.or_else(|| DEVICES.iter().any(|word| name.ends_with(word)).then_some(Role::Devices))
    }

    /// Returns the value in full precision, if the parameter is known to change the numerical results.
    pub fn in_full_precision(&self) -> Option<&Value> {
        self.full_precision.as_ref()
    }

    /// The parameter's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the condition under which the parameter is active; without a condition it always is.
    pub fn condition(&self) -> Option<&Expression> {
        self.when.as_ref()
    }

    /// Returns the number of settings.
    pub fn len(&self) -> u64 {
        match &self.levels {
            Levels::Listed(values) => values.len() as u64,
            Levels::Integers { count, .. } | Levels::Floats { count, .. } | Levels::Powers { count, .. } => *count,
        }
    }

    pub(super) fn only(&self, level: u32) -> Self {
        Self { levels: Levels::Listed(vec![self.value(level)]), ..self.clone() }
    }

    /// Returns the sequence of the settings.
    pub fn shape(&self) -> Shape<'_> {
        let end = |level| self.value(level).as_i64().unwrap_or(0);
        let float = |level| self.value(level).as_f64().unwrap_or(0.0);
        match &self.levels {
            Levels::Listed(values) => Shape::Listed(values),
            Levels::Integers { step, .. } => Shape::Integers { first: end(0), last: end(u32::MAX), step: *step },
            Levels::Floats { step, .. } => Shape::Floats { first: float(0), last: float(u32::MAX), step: *step },
            Levels::Powers { .. } => Shape::Powers { first: end(0), last: end(u32::MAX) },
        }
    }

    /// Returns true if there are no settings.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the setting at a level. Levels count from zero; a level past the end gives the last setting.
    pub fn value(&self, level: u32) -> Value {
        let level = u64::from(level).min(self.len().saturating_sub(1));
        match &self.levels {
            // Below the length of a list.
            Levels::Listed(values) => values[level as usize].clone(),
            Levels::Integers { start, step, .. } => {
                Value::Int(start.saturating_add(step.saturating_mul(level.cast_signed())))
            }
            Levels::Floats { start, step, .. } => Value::Float(tidy(start + step * level as f64)),
            // An exponent is below 64.
            Levels::Powers { first_exponent, .. } => Value::Int(1_i64 << (first_exponent + level as u32).min(62)),
        }
    }

    /// Returns the level of a setting, if the parameter has it. An integer matches a float of the same size.
    pub fn level(&self, value: &Value) -> Option<u32> {
        let found = match &self.levels {
            Levels::Listed(values) => values.iter().position(|listed| same(listed, value))? as u64,
            Levels::Integers { start, step, .. } => {
                let number = value.as_i64()?;
                let offset = u64::try_from(number.checked_sub(*start)?).ok()?;
                (*step > 0 && offset.is_multiple_of(step.unsigned_abs())).then(|| offset / step.unsigned_abs())?
            }
            // A negative or huge level is no level of the parameter and fails the check below.
            Levels::Floats { start, step, .. } => ((value.as_f64()? - start) / step).round() as u64,
            Levels::Powers { first_exponent, .. } => {
                let number = u64::try_from(value.as_i64()?).ok().filter(|number| number.is_power_of_two())?;
                u64::from(number.ilog2().checked_sub(*first_exponent)?)
            }
        };
        let level = u32::try_from(found).ok().filter(|level| u64::from(*level) < self.len())?;
        same(&self.value(level), value).then_some(level)
    }

    /// Returns true if the settings are ordered, so that a setting has a next smaller and a next larger neighbour.
    pub fn is_ordinal(&self) -> bool {
        match &self.levels {
            Levels::Listed(values) => values.iter().all(|value| value.as_f64().is_some()),
            Levels::Integers { .. } | Levels::Floats { .. } | Levels::Powers { .. } => true,
        }
    }

    /// Returns the parameter's effect on device memory.
    ///
    /// By default, batch sizes are [`Grows`](MemoryRole::Grows). Other numbers are [`Same`](MemoryRole::Same), unless their
    /// name mentions a way to divide or move memory (devices, ranks, shards, checkpointing, accumulation, bits). Strings and
    /// booleans are [`Unknown`](MemoryRole::Unknown), except the loader's switches.
    pub fn memory_role(&self) -> MemoryRole {
        const DIVIDERS: &str = "accum bit checkpoint device gpu node offload parallel rank shard stage world zero";
        const LOADER_SWITCHES: &[&str] = &["persistent_workers", "pin_memory", "drop_last", "in_order"];
        let has_divider = || DIVIDERS.split(' ').any(|word| self.name.contains(word));
        if let Some(role) = self.memory {
            role
        } else if self.is_stated_batch_size() || self.has_batch_name() {
            MemoryRole::Grows
        } else if LOADER_SWITCHES.contains(&self.name.as_str()) || (self.is_ordinal() && !has_divider()) {
            MemoryRole::Same
        } else {
            MemoryRole::Unknown
        }
    }

    /// Returns true if the parameter is the number of samples per training step, of each process or in total. Either it is
    /// stated, or the name suggests it.
    pub fn is_batch_size(&self) -> bool {
        const OTHERS: &[&str] = &["eval", "val", "valid", "validation", "test", "predict"];
        self.is_stated_batch_size() || self.has_batch_name() && !self.name.split('_').any(|word| OTHERS.contains(&word))
    }

    fn is_stated_batch_size(&self) -> bool {
        self.is_batch_size || self.role == Some(Some(Role::Batch))
    }

    fn has_batch_name(&self) -> bool {
        const BATCHES: &[&str] = &["batch_size", "batch", "micro_batch_size", "micro_batch"];
        BATCHES.contains(&self.name.as_str()) || self.name.ends_with("_batch_size")
    }

    pub(super) fn duplicate(&self) -> Option<&Value> {
        let Levels::Listed(values) = &self.levels else { return None };
        let is_earlier = |(at, value): &(usize, &Value)| values[..*at].iter().any(|other| same(other, value));
        values.iter().enumerate().find(is_earlier).map(|(_, value)| value)
    }

    /// Returns the settings and the condition in full: parameters with equal definitions are the same.
    pub fn definition(&self) -> String {
        let settings = match &self.levels {
            Levels::Listed(values) => values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", "),
            Levels::Integers { start, step, count } => format!("{count} integers from {start} by {step}"),
            Levels::Floats { start, step, count } => format!("{count} floats from {start:?} by {step:?}"),
            Levels::Powers { first_exponent, count } => format!("{count} powers of two from 2^{first_exponent}"),
        };
        match &self.when {
            Some(condition) => format!("{settings} when {}", condition.text()),
            None => settings,
        }
    }

    /// Returns the settings in a few words, for tables: `8, 16, 32` or `0, 2 .. 16`.
    pub fn summary(&self) -> String {
        const SHOWN: u32 = 6;
        // A space refuses parameters with more than 2^32 - 2 settings.
        let count = self.len() as u32;
        let list = |levels: std::ops::Range<u32>| {
            levels.map(|level| self.value(level).to_string()).collect::<Vec<_>>().join(", ")
        };
        if count <= SHOWN + 2 { list(0..count) } else { format!("{} .. {}", list(0..2), self.value(count - 1)) }
    }
}

/// Returns true if two values are equal, or the same number in two kinds: a user may write 1 for 1.0.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        // Different integers beyond 2^53 map to the same float.
        (Value::Int(a), Value::Int(b)) => a == b,
        _ => a == b || (a.as_f64().is_some() && a.as_f64() == b.as_f64()),
    }
}

/// Removes the rounding error of a sum like 0.1 + 0.2, so that files and command lines show 0.3.
fn tidy(number: f64) -> f64 {
    format!("{number:.12e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::space::{Space, SpaceError};

    #[test]
    fn a_stated_role_overrides_the_name_and_none_is_one() {
        let numbers = |name: &str| Parameter::range(name, 0, 8, 1);
        let words = || Parameter::values("mode", ["a", "b"]);
        for (parameter, role) in [
            (numbers("loader_workers"), Some(Role::Workers)),
            (numbers("grad_accum_steps"), Some(Role::Accumulation)),
            (numbers("loader_workers").plays(None), None),
            (numbers("readers").plays(Role::Workers), Some(Role::Workers)),
            (words().plays(Role::Threads), None),
            (words().plays(Role::Precision), Some(Role::Precision)),
            (Parameter::values("bits", [16, 32]).plays(Role::Precision), Some(Role::Precision)),
        ] {
            assert_eq!(parameter.role(), role, "{parameter:?}");
        }
    }

    #[test]
    fn ranges_include_both_ends() {
        for (parameter, shown) in [
            (Parameter::range("w", 0, 6, 2), "0, 2, 4, 6"),
            (Parameter::range("w", 0, 7, 2), "0, 2, 4, 6"),
            (Parameter::float_range("r", 0.1, 0.5, 0.1), "0.1, 0.2, 0.3, 0.4, 0.5"),
            (Parameter::powers_of_two("b", 8, 64), "8, 16, 32, 64"),
            (Parameter::powers_of_two("b", 9, 100), "16, 32, 64"),
        ] {
            assert_eq!(parameter.summary(), shown);
        }
    }

    #[test]
    fn empty_ranges_have_no_settings_and_the_longest_are_too_long_for_a_space() {
        for parameter in [
            Parameter::range("a", 1, 0, 1),
            Parameter::range("a", 0, 1, 0),
            Parameter::powers_of_two("a", 9, 15),
            Parameter::powers_of_two("a", 1, -8),
            Parameter::float_range("a", 0.0, 1.0, 0.0),
            Parameter::float_range("a", 0.0, f64::NAN, 0.1),
        ] {
            assert!(parameter.is_empty(), "{parameter:?}");
        }
        for parameter in [Parameter::range("a", i64::MIN, i64::MAX, 1), Parameter::float_range("a", 0.0, 1e300, 1.0)] {
            assert!(matches!(Space::new([parameter]), Err(SpaceError::TooMany { .. })));
        }
    }

    #[test]
    fn level_and_value_are_inverse() {
        for parameter in [
            Parameter::range("a", -3, 9, 3),
            Parameter::float_range("a", 0.0, 1.0, 0.05),
            Parameter::powers_of_two("a", 2, 4096),
            Parameter::values("a", ["x", "y"]),
        ] {
            for level in 0..u32::try_from(parameter.len()).unwrap() {
                assert_eq!(parameter.level(&parameter.value(level)), Some(level), "{parameter:?}");
            }
            assert_eq!(parameter.level(&Value::from("nowhere")), None);
            assert_eq!(parameter.level(&Value::from(1_000_001)), None);
        }
    }

    #[test]
    fn long_ranges_are_not_listed() {
        let parameter = Parameter::range("a", 0, 4_000_000_000, 1);
        assert_eq!(parameter.value(3_999_999_999), Value::Int(3_999_999_999));
        assert_eq!(parameter.summary(), "0, 1 .. 4000000000");
    }

    #[test]
    fn memory_follows_what_the_name_says_unless_stated() {
        let numbers = |name| Parameter::values(name, [1, 2]);
        let played = numbers("pictures").plays(Role::Batch);
        let left_out = numbers("batch_size").plays(None);
        assert!(played.is_batch_size() && left_out.is_batch_size());
        for (parameter, role) in [
            (played, MemoryRole::Grows),
            (left_out, MemoryRole::Grows),
            (numbers("batch_size"), MemoryRole::Grows),
            (numbers("eval_batch_size"), MemoryRole::Grows),
            (numbers("workers"), MemoryRole::Same),
            (numbers("num_gpus"), MemoryRole::Unknown),
            (Parameter::values("precision", ["fp32"]), MemoryRole::Unknown),
            (Parameter::values("pin_memory", [true]), MemoryRole::Same),
            (numbers("seq_len").memory(MemoryRole::Grows), MemoryRole::Grows),
        ] {
            assert_eq!(parameter.memory_role(), role, "{parameter:?}");
        }
    }
}
