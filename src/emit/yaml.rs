//! One `name: value` line for each setting; texts are quoted, so that `no` stays a text.

use std::fmt::Write as _;

use crate::space::{Settings, Value};

pub(super) fn write(settings: &Settings) -> String {
    let mut text = String::new();
    for (name, value) in settings.iter() {
        let _ = match value {
            // A JSON string is a YAML double-quoted scalar.
            Value::Text(value) => writeln!(text, "{name}: {}", serde_json::Value::from(value.as_str())),
            other => writeln!(text, "{name}: {other}"),
        };
    }
    text
}
