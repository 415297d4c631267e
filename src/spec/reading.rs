//! Reads text into tables, and words the reader's objections in terms of a spec.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use super::error::{SourceFile, SpecError, suggestion};
use super::values::Wrong;
use super::{keys, syntax};

/// Reads a file as tables.
///
/// # Errors
/// The first mistake, with its place.
pub(super) fn read<T: DeserializeOwned>(source: &SourceFile) -> Result<T, SpecError> {
    let document = syntax::parse(source)?;
    check_tables(source, document.get_ref(), &mut Vec::new())?;
    let places = document.get_ref().clone();
    T::deserialize(toml::Deserializer::from(document)).map_err(|error| mistake(source, &error, &places))
}

/// Refuses a list in the place of a table: serde would take its entries for the table's keys, one after the other.
fn check_tables(source: &SourceFile, table: &DeTable<'_>, path: &mut Vec<String>) -> Result<(), SpecError> {
    for (name, value) in table {
        path.push(name.get_ref().to_string());
        let entries = match value.get_ref() {
            DeValue::Array(entries) if must_be_a_table(path) => {
                // The place of [[step]] is that of its first header.
                let span = entries.first().map_or(value.span(), |entry| entry.span());
                let span = if source.text[span.clone()].starts_with("[[") { span } else { value.span() };
                return Err(wrong_kind(source, span, path, value.get_ref()));
            }
            DeValue::Array(entries) => &entries[..],
            _ => std::slice::from_ref(value),
        };
        let is_list = matches!(value.get_ref(), DeValue::Array(_));
        for entry in entries {
            let depth = path.len();
            path.extend(is_list.then(|| "[]".to_owned()));
            match entry.get_ref() {
                DeValue::Table(inner) => check_tables(source, inner, path)?,
                DeValue::Array(_) if must_be_a_table(path) => {
                    return Err(wrong_kind(source, entry.span(), path, entry.get_ref()));
                }
                _ => {}
            }
            path.truncate(depth);
        }
        path.pop();
    }
    Ok(())
}

fn must_be_a_table(path: &[String]) -> bool {
    keys::find(path).is_some_and(|key| key.must_be.starts_with("a table"))
}

/// The tables of an imported file.
const SPACE_FILE: [&str; 2] = ["space", "rules"];

/// Makes the error for a mistake that serde found.
fn mistake(source: &SourceFile, error: &toml::de::Error, document: &DeTable<'_>) -> SpecError {
    let (span, message) = (error.span().unwrap_or(0..0), error.message());
    if let Some((span, message, hint)) = Wrong::parts(message) {
        return invalid(source, span, message, hint, document);
    }
    let place = find(document, &span, &mut Vec::new());
    let path = place.as_ref().map_or(&[][..], |(path, _)| path.as_slice());
    if let Some((name, names)) = choice(message, "unknown field ") {
        let owner = keys::owner(path.split_last().map_or(&[], |(_, owner)| owner));
        let thing = match &place {
            Some((path, DeValue::Table(_))) if path.len() == 1 => "table",
            _ => "key",
        };
        let owner = if names == SPACE_FILE { "a search space" } else { owner.as_str() };
        return source.error(span, format!("`{name}` is no {thing} of {owner}"), suggestion(name, names.into_iter()));
    }
    if let Some((name, names)) = choice(message, "unknown variant ") {
        let hint = suggestion(name, names.into_iter());
        return source.error(span, format!("{} cannot be `{name}`", keys::subject(path)), hint);
    }
    if let Some((name, _)) = choice(message, "missing field ") {
        return missing(source, span, path, name);
    }
    match &place {
        Some((path, value)) => wrong_kind(source, span, path, value),
        None => source.error(span, message, "compare it with examples/quickstart.toml"),
    }
}

/// Makes the error for a value that its check refused.
fn invalid(source: &SourceFile, span: Range<usize>, message: &str, hint: &str, document: &DeTable<'_>) -> SpecError {
    let (path, _) = find(document, &span, &mut Vec::new()).unwrap_or((Vec::new(), &DeValue::Boolean(false)));
    let message = message.strip_prefix("{key}").map_or(message.to_owned(), |rest| keys::subject(&path) + rest);
    let hint = match keys::find(&path).filter(|_| hint.is_empty()) {
        Some(key) => format!("write {}", key.example),
        None => hint.replace("{key}", path.last().map_or("", String::as_str)),
    };
    source.error(span, message, hint)
}

fn missing(source: &SourceFile, span: Range<usize>, path: &[String], name: &str) -> SpecError {
    let mut inner = path.to_vec();
    inner.push(name.to_owned());
    let thing = if path.is_empty() { format!("table [{name}]") } else { format!("`{name}`") };
    let hint = keys::find(&inner).map_or_else(|| format!("add `{name}`"), |key| format!("add {}", key.example));
    source.error(span, format!("{} has no {thing}", keys::owner(path)), hint)
}

fn wrong_kind(source: &SourceFile, span: Range<usize>, path: &[String], value: &DeValue<'_>) -> SpecError {
    if let DeValue::Integer(number) = value
        && i64::from_str_radix(number.as_str(), number.radix()).is_err()
    {
        return source.error(span, format!("{number} is too large"), "whole numbers go up to 9223372036854775807");
    }
    let found = match value {
        DeValue::String(_) => "a text",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
        _ => source.text.get(span.clone()).unwrap_or("something else"),
    };
    let subject = keys::subject(path);
    let (must_be, hint) = keys::find(path).map_or_else(
        || ("something else", "compare it with examples/quickstart.toml".to_owned()),
        |key| (key.must_be, format!("write {}", key.example)),
    );
    source.error(span, format!("{subject} must be {must_be}, and this is {found}"), hint)
}

/// Returns the name and the known names from serde's message about an unknown or missing name.
fn choice<'m>(message: &'m str, about: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let mut names = message.strip_prefix(about)?.split('`').skip(1).step_by(2);
    Some((names.next()?, names.collect()))
}

type Found<'d> = (Vec<String>, &'d DeValue<'d>);

/// Finds the path to the key or value that has exactly this place, and the value.
fn find<'d>(table: &'d DeTable<'d>, span: &Range<usize>, path: &mut Vec<String>) -> Option<Found<'d>> {
    table.iter().find_map(|(key, value)| {
        path.push(key.get_ref().to_string());
        let here = key.span() == *span || (value.span() == *span && !matches!(value.get_ref(), DeValue::Array(_)));
        let found = if here { Some((path.clone(), value.get_ref())) } else { find_inside(value, span, path) };
        path.pop();
        found
    })
}

fn find_inside<'d>(
    value: &'d toml::Spanned<DeValue<'d>>,
    span: &Range<usize>,
    path: &mut Vec<String>,
) -> Option<Found<'d>> {
    match value.get_ref() {
        DeValue::Table(table) => find(table, span, path),
        DeValue::Array(entries) => {
            path.push("[]".to_owned());
            let found = entries.iter().find_map(|entry| {
                let here = entry.span() == *span && !matches!(entry.get_ref(), DeValue::Array(_));
                if here { Some((path.clone(), entry.get_ref())) } else { find_inside(entry, span, path) }
            });
            path.pop();
            // A list comes after its entries, because the first of [[rules]] has the same place.
            found.or_else(|| (value.span() == *span).then(|| (path.clone(), value.get_ref())))
        }
        _ => None,
    }
}
