//! Turns `[baseline]` into the settings that a search starts from.

use super::error::{SourceFile, SpecError, suggestion};
use super::hardware::{CURE, LeftOut};
use super::located::{Entries, Located};
use crate::model::{LocateError, Settings, Space, Value};

/// The contents of `[baseline]`.
pub(super) struct Stated {
    pub(super) settings: Settings,
    /// True if the table leaves out active parameters.
    pub(super) is_partial: bool,
}

/// Completes settings with the first setting of each parameter that they leave out.
pub(super) fn completed(stated: &Settings, space: &Space) -> Settings {
    let located = space.locate(stated);
    located.map_or_else(|_| stated.clone(), |config| space.settings(&config).chosen(space))
}

/// Reads the settings of a table, if they are in the space.
pub(super) fn build(
    source: &SourceFile,
    table: &Located<Entries<Located<Value>>>,
    space: &Space,
    left_out: &[LeftOut],
) -> Result<Stated, SpecError> {
    let entries = &table.value.0;
    let settings: Settings = entries.iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect();
    let error = match space.locate(&settings) {
        Ok(config) => {
            let is_partial = space.as_it_is_with(&settings).is_ok_and(|stated| stated.is_as_it_is());
            let whole = space.settings(&config).chosen(space);
            return Ok(Stated { settings: if is_partial { settings } else { whole }, is_partial });
        }
        Err(error) => error,
    };
    if let LocateError::UnknownValue { name, value, .. } = &error
        && let Some((setting, reason)) = lacking(left_out, name, value)
    {
        let span = entries.iter().find(|(known, _)| known.value == *name).map(|(_, value)| value.span.clone());
        let message = format!("the baseline's `{name}` = \"{setting}\" is not in this GPU's hardware: {reason}");
        return Err(source.error(span.unwrap_or(table.span.clone()), message, CURE));
    }
    let entry = |wanted: &str| entries.iter().find(|(name, _)| name.value == wanted);
    let key = |wanted: &str| entry(wanted).map_or(table.span.clone(), |(name, _)| name.span.clone());
    let value = |wanted: &str| entry(wanted).map_or(table.span.clone(), |(_, value)| value.span.clone());
    let names = || space.parameters().iter().map(crate::model::Parameter::name);
    let (span, hint) = match &error {
        LocateError::UnknownName(name) => (key(name), suggestion(name, names())),
        LocateError::Derived(name) => (key(name), "take it out: it follows from other parameters".to_owned()),
        LocateError::UnknownValue { name, value: setting, .. } => (value(name), other_value(space, name, setting)),
        LocateError::Inactive { name, .. } => {
            (key(name), "take it out, or change the parameters that its condition names".to_owned())
        }
        LocateError::Forbidden { .. } => {
            (table.span.clone(), "the baseline is probed, so it must satisfy every rule".to_owned())
        }
    };
    Err(source.error(span, format!("the baseline is not in the space: {error}"), hint))
}

/// Returns the setting and why the hardware lacks it, if the space lacks the setting for that reason.
fn lacking(left_out: &[LeftOut], name: &str, value: &Value) -> Option<(String, String)> {
    let parameter = left_out.iter().find(|parameter| parameter.parameter == name)?;
    let (setting, precision) = parameter.settings.iter().find(|(setting, _)| *setting == value.to_string())?;
    Some((setting.clone(), parameter.hardware.lacks(*precision)))
}

/// Suggests what to do about a value that a parameter does not have.
fn other_value(space: &Space, name: &str, value: &Value) -> String {
    let parameter = space.parameter_index(name).map(|at| &space.parameters()[at]);
    let has = |value: &Value| parameter.is_some_and(|parameter| parameter.level(value).is_some());
    match value {
        Value::Text(text) if has(&Value::parse(text)) => format!("write {text} without quotes"),
        Value::Float(number) if has(&Value::parse(&number.to_string())) => format!("write {number} without a fraction"),
        other if has(&Value::Text(other.to_string())) => format!("write \"{other}\" in quotes"),
        _ => format!("add it to the settings of `{name}`, or choose another value"),
    }
}
