//! Finds where a mistake in the space lies in the files.

use std::ops::Range;

use super::collected::Collected;
use super::error::{SourceFile, SpecError, suggestion};
use super::located::Located;
use super::parameter::{expression, functions};
use crate::model::{ExpressionError, Owner, SpaceError};

/// Points a mistake in the space at its place in a file.
pub(super) fn mistake(collected: &Collected, file: &SourceFile, table: &Range<usize>, error: &SpaceError) -> SpecError {
    let named = |name: &str, hint: &str| {
        let (source, definition) = collected.definition(name)?;
        Some(source.error(definition.name.span.clone(), error.to_string(), hint))
    };
    let found = match error {
        SpaceError::BadName { name, .. } => named(name, &format!("rename it, for example `{}`", usable(name))),
        SpaceError::DuplicateName { name } => named(name, "rename one of them"),
        SpaceError::Empty { parameter } => named(parameter, "give it at least one setting"),
        SpaceError::TooMany { parameter } => named(parameter, "use a larger `step`, or `powers_of_two`"),
        SpaceError::DuplicateValue { parameter, .. } => named(parameter, "take one of them out"),
        SpaceError::UnknownName { owner, name } => {
            collected.expression_at(owner).map(|(source, text)| unknown_name(source, text, name, collected.names()))
        }
        SpaceError::Circular { names } => circle(collected, names),
        SpaceError::Evaluation { owner, settings, source } => evaluation(collected, owner, settings, source),
        SpaceError::NoParameters => None,
    };
    found.unwrap_or_else(|| {
        file.error(table.clone(), error.to_string(), "for example batch_size = { powers_of_two = [8, 64] }")
    })
}

/// Makes the error for a name in an expression that nothing has.
pub(super) fn unknown_name<'k>(
    source: &SourceFile,
    text: &Located<String>,
    name: &str,
    known: impl Iterator<Item = &'k str>,
) -> SpecError {
    let part = expression(source, text).ok().and_then(|parsed| parsed.find(name));
    let behind = part.as_ref().and_then(|part| text.value.get(part.end..)).unwrap_or_default();
    let span = source.inside(&text.span, &text.value, part.clone());
    if behind.trim_start().starts_with('(') {
        return source.error(span, format!("no function is called `{name}`"), functions());
    }
    let hint = format!("{} (a text stands in quotes, such as '{name}')", suggestion(name, known));
    source.error(span, format!("no parameter is called `{name}`"), hint)
}

/// Turns a name that expressions cannot use into one that they can.
fn usable(name: &str) -> String {
    let letters: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match letters.chars().next() {
        Some(first) if letters == name && first.is_ascii_alphabetic() => format!("{name}_value"),
        Some(first) if first.is_ascii_alphabetic() => letters,
        Some(_) if letters.chars().any(|c| c != '_') => format!("value_{letters}"),
        _ => "batch_size".to_owned(),
    }
}

fn circle(collected: &Collected, names: &[String]) -> Option<SpecError> {
    let first = names.first()?;
    let next = names.get(1).unwrap_or(first);
    let derived = collected.expression_at(&Owner::Derive(first.clone()));
    let (source, text) = derived.or_else(|| collected.expression_at(&Owner::When(first.clone())))?;
    let part = expression(source, text).ok().and_then(|parsed| parsed.find(next));
    let through: Vec<String> = names.iter().skip(1).map(|name| format!("`{name}`")).collect();
    let message = match through.as_slice() {
        [] => format!("`{first}` depends on itself"),
        _ => format!("`{first}` depends on itself, by way of {}", through.join(" and ")),
    };
    let span = source.inside(&text.span, &text.value, part);
    Some(source.error(span, message, "write it in terms of parameters that do not depend on it"))
}

fn evaluation(collected: &Collected, owner: &Owner, settings: &str, error: &ExpressionError) -> Option<SpecError> {
    let (source, text) = collected.expression_at(owner)?;
    let place = if settings.is_empty() { String::new() } else { format!(" for {settings}") };
    let owner = match owner {
        Owner::Rule(_) => "this rule".to_owned(),
        other => other.to_string(),
    };
    let hint = match error.message.as_str() {
        message if message.contains("true or false") => "compare it with a number, for example `... > 0`".to_owned(),
        message if message.contains("/ 0") || message.contains("% 0") => {
            "guard it, for example `1024 / workers if workers > 0 else 0`".to_owned()
        }
        message if message.contains("unsupported types") => {
            "numbers and texts do not mix: compare a text with ==, and write numbers without quotes".to_owned()
        }
        message if message.contains("no boolean, number or text") => {
            "write an expression that gives one number, text or boolean".to_owned()
        }
        _ => functions(),
    };
    let span = source.inside(&text.span, &text.value, error.range.clone());
    Some(source.error(span, format!("{owner} cannot be evaluated{place}: {}", error.message), hint))
}
