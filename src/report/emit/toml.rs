//! One `name = value` line for each setting.

use std::fmt::Write as _;

use crate::model::{Settings, Value};

pub(super) fn write(settings: &Settings) -> String {
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
