//! Reads text into tables. Explains text that is not TOML, and words serde's errors in terms of a spec.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{SourceFile, SpecError, suggestion};
use super::keys;
use super::values::Wrong;

/// Reads a file as tables; an error is the first mistake.
pub(super) fn read<T: DeserializeOwned>(source: &SourceFile) -> Result<T, SpecError> {
    let document = parse(source)?;
    check_tables(source, document.get_ref(), &mut Vec::new())?;
    let places = document.get_ref().clone();
    T::deserialize(toml::Deserializer::from(document)).map_err(|error| mistake(source, &error, &places))
}

/// Refuses a list in the place of a table: serde would read its entries as the keys of the table, in order.
fn check_tables(source: &SourceFile, table: &DeTable<'_>, path: &mut Vec<String>) -> Result<(), SpecError> {
    for (name, value) in table {
        path.push(name.get_ref().to_string());
        let entries = match value.get_ref() {
            DeValue::Array(entries) if must_be_a_table(path) => {
                // [[step]] has the place of its first header.
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
            // A list is tried after its entries, because the first entry of [[rules]] has the same place.
            found.or_else(|| (value.span() == *span).then(|| (path.clone(), value.get_ref())))
        }
        _ => None,
    }
}

const OPEN_TEXT: &str = "the text is not closed";
/// The messages of the TOML reader, with gputune's message and hint.
const KNOWN: &[(&str, &str, &str)] = &[
    ("string values must be quoted", "a text must be in quotes", "write \"...\" around it"),
    ("invalid basic string", OPEN_TEXT, "close it with \"; a text of several lines needs \"\"\" around it"),
    ("invalid multi-line basic string", OPEN_TEXT, "close it with \"\"\""),
    ("invalid literal string", OPEN_TEXT, "close it with '; a text of several lines needs ''' around it"),
    ("invalid multi-line literal string", OPEN_TEXT, "close it with '''"),
    (
        "missing escaped value",
        "a backslash starts an escape, and this is none",
        "write \\\\ for a backslash, or put the text in single quotes, which leave backslashes alone",
    ),
    ("unicode", "a backslash starts an escape, and this is none", "write \\\\ for a backslash, or use single quotes"),
    (
        "missing comma between array elements",
        "a comma or ] is missing in front of this",
        "put a comma there, or close the list with ]",
    ),
    ("missing comma between key-value pairs", "a comma is missing in front of this", "put a comma between two keys"),
    ("unclosed array table", "the header is not closed", "write [[rules]]"),
    ("unclosed array", "the list is not closed", "close it with ]"),
    ("unclosed inline table", "the table is not closed", "close it with }"),
    ("unclosed table", "the header is not closed", "close it with ]"),
    ("extra comma", "there is a comma too many", "take it out"),
    ("extra `=`", "there is a = too many", "write == only inside the quotes of a condition"),
    ("key with no value", "there is no value behind this key", "write key = value"),
    ("missing value", "there is no value behind the =", "write key = value"),
    ("missing assignment", "there is no = behind this key", "write key = value"),
    ("missing key", "there is no key in front of the =", "write key = value"),
    ("recursi", "the lists or tables lie too deep in each other", "no part of a spec lies that deep"),
    ("carriage return", "a carriage return without a line break", "save the file with ordinary line ends"),
];

/// Reads a file as TOML. A string that is not closed causes further mistakes, so it is reported first.
fn parse(source: &SourceFile) -> Result<Spanned<DeTable<'_>>, SpecError> {
    let (document, errors) = DeTable::parse_recoverable(&source.text);
    let is_open_text = |error: &&toml::de::Error| error.message().contains("string, expected");
    match errors.iter().find(is_open_text).or(errors.first()) {
        Some(error) => Err(no_toml(source, error)),
        None => Ok(document),
    }
}

fn no_toml(source: &SourceFile, error: &toml::de::Error) -> SpecError {
    let (span, message) = (error.span().unwrap_or(0..0), error.message());
    let text = source.text.get(span.clone()).unwrap_or_default();
    if message.starts_with("duplicate key") {
        return source.error(span, format!("`{text}` is there twice"), "take one of them out, or rename it");
    }
    if message.starts_with("string values must be quoted") && text.is_empty() {
        return source.error(span, "there is no value behind the =", "write key = value");
    }
    match KNOWN.iter().find(|(part, _, _)| message.contains(part)) {
        Some((_, message, hint)) => source.error(span, *message, *hint),
        None => source.error(span, message, "the file must be TOML, see https://toml.io"),
    }
}
