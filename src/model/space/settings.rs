//! The values of parameters: one setting, and the names and values of one config.

use std::fmt;
use std::hash::{Hash, Hasher};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Derived, Space};

/// One setting of a parameter.
///
/// Two values are equal when they have the same kind and content; floats compare by bits, so a value can be a key.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// Anything else, such as `"bf16"`.
    Text(String),
}

/// The setting that leaves a parameter unmodified in the script.
///
/// Every target of a parameter accepts it, in addition to the parameter's own settings. The step is then rendered as if the
/// parameter were inactive.
pub const AS_IT_IS: &str = "as it is";

impl Value {
    /// Returns true if it is the setting that [sets nothing](AS_IT_IS).
    pub fn is_as_it_is(&self) -> bool {
        matches!(self, Self::Text(text) if text == AS_IT_IS)
    }

    /// Returns the number that the value stands for, if any.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Bool(_) | Self::Text(_) => None,
        }
    }

    /// Returns the whole number that the value stands for, if any.
    pub fn as_i64(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    /// Returns the text of the value, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Parses the plainest meaning of a string: `true`, `8`, `0.5`, else the string itself.
    pub fn parse(text: &str) -> Self {
        match text {
            "true" => return Self::Bool(true),
            "false" => return Self::Bool(false),
            _ => {}
        }
        if let Ok(number) = text.parse::<i64>() {
            return Self::Int(number);
        }
        let numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
        match text.parse::<f64>() {
            Ok(number) if numeric && number.is_finite() => Self::Float(number),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// Returns the word for the value's kind in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "boolean",
            Self::Int(_) => "integer",
            Self::Float(_) => "float",
            Self::Text(_) => "text",
        }
    }

    /// Returns the value for one line of output. A string with line breaks or other control characters is escaped.
    pub fn in_line(&self) -> String {
        match self {
            Self::Text(text) if text.contains(char::is_control) => format!("{text:?}"),
            other => other.to_string(),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Text(a), Self::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Bool(value) => value.hash(state),
            Self::Int(value) => value.hash(state),
            Self::Float(value) => value.to_bits().hash(state),
            Self::Text(value) => value.hash(state),
        }
    }
}

/// The format for a command line, an environment variable or a rendered file.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => f.write_str(value),
        }
    }
}

from!(Value: bool => Bool, i32 => Int, i64 => Int, f64 => Float, &str => Text, String => Text);

/// Written by hand, because the error of a derived `untagged` only says that no variant matched.
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;

        impl de::Visitor<'_> for Scalar {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a boolean, an integer, a finite float or a text")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Int(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
                i64::try_from(value)
                    .map(Value::Int)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
                if value.is_finite() {
                    Ok(Value::Float(value))
                } else {
                    Err(E::invalid_value(de::Unexpected::Float(value), &self))
                }
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
                Ok(Value::Text(value.to_owned()))
            }
        }

        deserializer.deserialize_any(Scalar)
    }
}

/// Names with their values, in the order of the space. Inactive parameters are absent; derived values are included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    entries: Vec<(String, Value)>,
}

impl Settings {
    /// Returns the value of a name; `None` if the parameter is inactive or unknown.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the whole number of a name; `None` also if its value is not a whole number.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_i64()
    }

    /// Returns the string of a name; `None` also if its value is not a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_text()
    }

    /// Returns names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the settings without the derived values of a space.
    #[must_use]
    pub fn chosen(&self, space: &Space) -> Self {
        let derived: Vec<&str> = space.derived().iter().map(Derived::name).collect();
        self.without(&derived)
    }

    /// Returns the settings without these names.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        Self { entries: self.entries.iter().filter(|(name, _)| !names.contains(&name.as_str())).cloned().collect() }
    }

    /// Returns these settings with some replaced; the space's conditions and derived values are applied again.
    ///
    /// The new values need not be in the space. A parameter whose condition no longer holds is dropped. A parameter whose
    /// condition now holds gets no value.
    #[must_use]
    pub fn changed(&self, changes: &[(&str, &Value)], space: &Space) -> Self {
        let mut changed = self.chosen(space);
        for (name, value) in &mut changed.entries {
            if let Some((_, new)) = changes.iter().find(|(changed, _)| changed == name) {
                *value = (*new).clone();
            }
        }
        // A parameter comes after the parameters that its condition uses, directly or through derived values.
        for parameter in space.plan.order.iter().filter_map(|&at| space.parameters.get(at)) {
            let Some(when) = parameter.condition() else { continue };
            let mut known = changed.clone();
            known.derive(space);
            if !when.holds(|name| known.get(name)).unwrap_or(false) {
                changed.entries.retain(|(name, _)| name != parameter.name());
            }
        }
        changed.derive(space);
        changed
    }

    /// Adds the derived values of a space that follow from the settings, in the order of the space. A derived value may use
    /// a later one.
    pub(super) fn derive(&mut self, space: &Space) {
        let mut known = self.clone();
        for derived in space.graph.derived_order.iter().filter_map(|&at| space.derived.get(at)) {
            if let Ok(value) = derived.expression.value(|name| known.get(name)) {
                known.push(&derived.name, value);
            }
        }
        for derived in space.derived() {
            if let Some(value) = known.get(derived.name()) {
                self.push(derived.name(), value.clone());
            }
        }
    }

    pub(in crate::model) fn push(&mut self, name: &str, value: Value) {
        self.entries.push((name.to_owned(), value));
    }

    /// Returns true if nothing is set.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the set parameters in one line: `batch_size=64 workers=2`; `as it is` if nothing is set.
    pub fn line(&self) -> String {
        let set = self.iter().filter(|(_, value)| !value.is_as_it_is());
        let words: Vec<String> = set.map(|(name, value)| format!("{name}={}", value.in_line())).collect();
        if words.is_empty() { AS_IT_IS.to_owned() } else { words.join(" ") }
    }
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Settings {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        Self { entries: entries.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> de::Visitor<'de> for Entries {
            type Value = Settings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with their values")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
                let mut settings = Settings::default();
                while let Some((name, value)) = map.next_entry()? {
                    settings.entries.push((name, value));
                }
                Ok(settings)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::space::{Expression, Parameter};

    #[test]
    fn a_text_is_read_as_what_it_plainly_means() {
        let numbers = [("8", Value::Int(8)), ("0.5", Value::Float(0.5)), ("1e-4", Value::Float(1e-4))];
        let others = [("true", Value::Bool(true)), ("inf", Value::from("inf")), ("bf16", Value::from("bf16"))];
        for (text, value) in numbers.into_iter().chain(others) {
            assert_eq!(Value::parse(text), value);
        }
    }

    #[test]
    fn every_kind_survives_json_and_a_list_is_refused_with_what_was_expected() {
        for value in [Value::from(true), Value::from(8), Value::from(0.5), Value::from(2.0), Value::from("a \"b\"")] {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value, "{text}");
        }
        let error = serde_json::from_str::<Value>("[1]").unwrap_err().to_string();
        assert!(error.contains("a boolean, an integer, a finite float or a text"), "{error}");
    }

    fn expression(text: &str) -> Expression {
        Expression::parse(text).unwrap()
    }

    #[test]
    fn a_derived_value_may_use_a_later_one_in_changed_and_partly_set_settings() {
        let parameters = [Parameter::values("x", [2, 3]), Parameter::values("y", [1])];
        let space = Space::built(parameters, &[("b", "a * 10"), ("a", "x + 1")], &[]).unwrap();
        let set = space.as_it_is_with(&Settings::from_iter([("x", 3)])).unwrap();
        assert_eq!(space.settings(&set).line(), "x=3 b=40 a=4");
        let settings = space.settings(&space.first().unwrap());
        assert_eq!(settings.line(), "x=2 y=1 b=30 a=3");
        assert_eq!(settings.changed(&[("x", &Value::Int(7))], &space).line(), "x=7 y=1 b=80 a=8");
    }

    #[test]
    fn a_condition_on_a_derived_value_is_checked_with_the_changed_settings() {
        let parameters = [
            Parameter::values("window", [8]).when(expression("scaler")),
            Parameter::values("scaler", [true]).when(expression("half")),
            Parameter::values("prefetch", [4]).when(expression("loads")),
            Parameter::values("precision", ["fp16"]),
            Parameter::values("workers", [2]),
        ];
        let derived = [("half", "precision != 'fp32'"), ("loads", "workers > 0")];
        let space = Space::built(parameters, &derived, &[]).unwrap();
        let settings = space.settings(&space.first().unwrap());
        let line = "window=8 scaler=true prefetch=4 precision=fp16 workers=2 half=true loads=true";
        assert_eq!(settings.line(), line);
        let changed = settings.changed(&[("precision", &Value::from("fp32"))], &space);
        assert_eq!(changed.line(), "prefetch=4 precision=fp32 workers=2 half=false loads=true");
    }

    #[test]
    fn a_line_has_only_what_is_set() {
        let line = |settings: &[(&str, Value)]| Settings::from_iter(settings.iter().cloned()).line();
        let (two, unset) = (Value::Int(2), Value::from("as it is"));
        assert_eq!(line(&[("workers", two), ("prefetch", unset.clone())]), "workers=2");
        assert_eq!(line(&[("prefetch", unset)]), "as it is");
        assert_eq!(line(&[]), "as it is");
    }
}
