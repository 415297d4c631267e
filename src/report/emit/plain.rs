//! The settings as JSON, TOML or YAML: names and values alone.

use std::fmt::Write as _;

use crate::model::{Settings, Value};

/// Writes one JSON object, with names in order.
pub(super) fn json(settings: &Settings) -> String {
    // Settings are names and scalars, which can always be serialised.
    serde_json::to_string_pretty(settings).unwrap_or_default() + "\n"
}

/// Writes one `name = value` line for each setting.
pub(super) fn toml(settings: &Settings) -> String {
    let mut text = String::new();
    for (name, value) in settings.iter() {
        let value = match value {
            Value::Bool(value) => toml::Value::from(*value),
            Value::Int(value) => toml::Value::from(*value),
            Value::Float(value) => toml::Value::from(*value),
            Value::Text(value) => toml::Value::from(value.as_str()),
        };
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}

/// Writes one `name: value` line for each setting; strings are quoted, so that `no` stays a string.
pub(super) fn yaml(settings: &Settings) -> String {
    settings.iter().map(|(name, value)| format!("{name}: {}\n", yaml_scalar(value))).collect()
}

/// Returns a value that every YAML reader reads alike. Strings are quoted, and numbers have the exponent of YAML 1.1, which reads
/// `1e-5` as a string (<https://yaml.org/type/float.html>).
pub fn yaml_scalar(value: &Value) -> String {
    match value {
        // A JSON string is a YAML double-quoted scalar.
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::Float(number) => yaml_float(*number),
        other => other.to_string(),
    }
}

/// Formats a number with a dot, and with a sign in its exponent.
pub(super) fn yaml_float(number: f64) -> String {
    let text = format!("{number:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let dot = if digits.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    format!("{digits}{dot}e{sign}{exponent}")
}
