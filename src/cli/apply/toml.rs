//! Finds the values of a TOML file.

use std::ops::Range;

use gputune::model::Value;
use gputune::report::emit::toml_scalar;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::form::Old;
use super::{LIST, Language, Place, TABLE, Text};

pub(super) const LANGUAGE: Language = Language {
    name: "TOML",
    endings: &["toml"],
    places,
    read,
    show,
    is_same: |old, value| read(old) == Old::Scalar(value.clone()),
    add,
};

fn places(text: &str) -> Result<Vec<Place>, String> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("{line}{}", error.message())
    })?;
    let mut found = Vec::new();
    table_places(table.get_ref(), &[], &mut found);
    found.sort_by_key(|place| place.key.start);
    Ok(found)
}

fn table_places(table: &DeTable<'_>, path: &[String], found: &mut Vec<Place>) {
    for (key, value) in table {
        let mut path = path.to_vec();
        path.push(key.get_ref().to_string());
        value_places(value, key.span(), path, found);
    }
}

fn value_places(value: &Spanned<DeValue<'_>>, key: Range<usize>, path: Vec<String>, found: &mut Vec<Place>) {
    let obstacle = match value.get_ref() {
        DeValue::Table(table) => {
            table_places(table, &path, found);
            Some(TABLE)
        }
        DeValue::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                let mut path = path.clone();
                path.push(at.to_string());
                value_places(value, value.span(), path, found);
            }
            Some(LIST)
        }
        _ => None,
    };
    found.push(Place { path, span: value.span(), key, obstacle });
}

fn read(old: &str) -> Old {
    let table = toml::from_str::<toml::Table>(&format!("x = {old}"));
    match table.ok().and_then(|mut table| table.remove("x")) {
        Some(toml::Value::Boolean(old)) => Old::Scalar(Value::Bool(old)),
        Some(toml::Value::Integer(old)) => Old::Scalar(Value::Int(old)),
        Some(toml::Value::Float(old)) => Old::Scalar(Value::Float(old)),
        Some(toml::Value::String(old)) => Old::Scalar(Value::Text(old)),
        _ => Old::Other,
    }
}

fn show(value: &Value, old: &str) -> String {
    match value {
        Value::Text(it) if old.starts_with('\'') && !old.starts_with("'''") && is_literal(it) => format!("'{it}'"),
        value => toml_scalar(value),
    }
}

/// Returns true if a string can stand in single quotes.
fn is_literal(text: &str) -> bool {
    !text.contains('\'') && !text.chars().any(char::is_control)
}

fn add(text: &Text<'_>, own: Option<&Place>, path: &[String], (key, value): (&str, &Value)) -> Option<(usize, String)> {
    let line_break = text.line_break();
    let is_bare = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let key = if is_bare(key) { key.to_owned() } else { toml::Value::from(key).to_string() };
    let entry = format!("{key} = {}", toml_scalar(value));
    if let Some(own) = own.filter(|own| text.of(own).starts_with('{')) {
        let whole = text.of(own);
        let inside = whole.strip_suffix('}').unwrap_or(whole).trim_end().len();
        let separator = if text.children(path).next().is_some() { ", " } else { " " };
        return Some((own.span.start + inside, format!("{separator}{entry}")));
    }
    // The new line goes after the table's own settings. Subtables do not count: their headers may be anywhere.
    let is_below_header = |place: &&Place| !text.text[text.line_start(place.key.start)..place.key.start].contains('[');
    let own_settings = text.children(path).filter(|place| place.obstacle != Some(TABLE));
    let in_one_line = |place: &&Place| place.obstacle.is_none() || !text.of(place).contains('[');
    let last = own_settings.filter(in_one_line).filter(is_below_header).last();
    if let Some(last) = last {
        let (at, before) = text.after_line(last);
        return Some((at, format!("{before}{}{entry}{line_break}", text.indent(last.key.start))));
    }
    let Some(own) = own else { return Some((0, format!("{entry}{line_break}"))) };
    // In a table without settings, the new line goes after the header.
    let header = text.text[own.key.start..].find('\n').map(|end| own.key.start + end + 1);
    Some(header.map_or_else(
        || (text.text.len(), format!("{line_break}{entry}{line_break}")),
        |at| (at, format!("{entry}{line_break}")),
    ))
}
