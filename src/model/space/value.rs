//! One setting of a parameter: a boolean, an integer, a float or a string.

use std::fmt;
use std::hash::{Hash, Hasher};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

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
            #[expect(clippy::cast_precision_loss, reason = "settings are far below 2^53")]
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Bool(_) | Self::Text(_) => None,
        }
    }

    /// Returns the whole number that the value stands for, if any.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
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

impl Value {
    /// Returns the value for one line of output. A string with line breaks or other control characters is quoted and
    /// escaped.
    pub fn in_line(&self) -> String {
        match self {
            Self::Text(text) if text.contains(char::is_control) => format!("{text:?}"),
            other => other.to_string(),
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

macro_rules! from {
    ($($type:ty => $variant:ident),*) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

from!(bool => Bool, i32 => Int, i64 => Int, f64 => Float, &str => Text, String => Text);

/// Written by hand: a derived `untagged` says only that no variant matched.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_what_it_plainly_means() {
        assert_eq!(Value::parse("true"), Value::Bool(true));
        assert_eq!(Value::parse("8"), Value::Int(8));
        assert_eq!(Value::parse("0.5"), Value::Float(0.5));
        assert_eq!(Value::parse("1e-4"), Value::Float(1e-4));
        assert_eq!(Value::parse("inf"), Value::from("inf"));
        assert_eq!(Value::parse("bf16"), Value::from("bf16"));
    }

    #[test]
    fn every_kind_survives_json() {
        for value in [Value::from(true), Value::from(8), Value::from(0.5), Value::from(2.0), Value::from("a \"b\"")] {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn a_list_is_refused_with_what_was_expected() {
        let error = serde_json::from_str::<Value>("[1]").unwrap_err().to_string();
        assert!(error.contains("a boolean, an integer, a finite float or a text"), "{error}");
    }
}
