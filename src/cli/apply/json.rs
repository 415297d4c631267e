//! Finds the values of a JSON file.

use std::ops::Range;

use gputune::model::Value;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::form::Old;
use super::{LIST, Language, Place, TABLE, Text};

pub(super) const LANGUAGE: Language = Language {
    name: "JSON",
    endings: &["json"],
    places,
    read,
    show,
    is_same: |old, value| read(old) == Old::Scalar(value.clone()),
    add,
};

fn places(text: &str) -> Result<Vec<Place>, String> {
    // This also limits the depth, so that `add_places` can call itself.
    let root: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if !root.is_object() {
        return Err("it is no object of settings".to_owned());
    }
    let mut found = Vec::new();
    add_places(text, text.trim_start(), &[], &mut found);
    found.sort_by_key(|place| place.key.start);
    Ok(found)
}

/// Adds the values in an object or a list, whose text is a part of the whole text.
fn add_places(whole: &str, inside: &str, path: &[String], found: &mut Vec<Place>) {
    let range = |part: &RawValue| {
        let start = part.get().as_ptr() as usize - whole.as_ptr() as usize;
        start..start + part.get().len()
    };
    let values: Vec<(String, Range<usize>, &RawValue)> = if inside.starts_with('{') {
        let Members(members) = serde_json::from_str(inside).unwrap_or_default();
        let name = |key: &RawValue| serde_json::from_str(key.get()).unwrap_or_default();
        members.into_iter().map(|(key, value)| (name(key), range(key), value)).collect()
    } else {
        let items: Vec<&RawValue> = serde_json::from_str(inside).unwrap_or_default();
        let start = |item: &RawValue| range(item).start;
        items.into_iter().enumerate().map(|(at, item)| (at.to_string(), start(item)..start(item), item)).collect()
    };
    for (name, key, value) in values {
        let path = [path, &[name]].concat();
        let obstacle = match value.get().as_bytes().first() {
            Some(b'{') => Some(TABLE),
            Some(b'[') => Some(LIST),
            _ => None,
        };
        if obstacle.is_some() {
            add_places(whole, value.get(), &path, found);
        }
        found.push(Place { path, span: range(value), key, obstacle });
    }
}

/// The keys and values of an object, in order and with duplicates.
#[derive(Default)]
struct Members<'t>(Vec<(&'t RawValue, &'t RawValue)>);

impl<'t> Deserialize<'t> for Members<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'t> Visitor<'t> for InOrder {
            type Value = Members<'t>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Members<'t>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

fn read(old: &str) -> Old {
    match serde_json::from_str::<Option<Value>>(old) {
        Ok(Some(value)) => Old::Scalar(value),
        Ok(None) => Old::Null,
        Err(_) => Old::Other,
    }
}

fn show(value: &Value, _: &str) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn add(text: &Text<'_>, own: Option<&Place>, path: &[String], (key, value): (&str, &Value)) -> Option<(usize, String)> {
    let entry = format!("{}: {}", serde_json::Value::from(key), show(value, ""));
    if let Some(last) = text.children(path).last() {
        // Repeats the white space before the last key, so that the new key gets the same indentation.
        let before = &text.text[..last.key.start];
        let gap = &before[before.trim_end().len()..];
        return Some((last.span.end, format!(",{gap}{entry}")));
    }
    let start = own.map_or_else(|| text.text.find('{'), |own| Some(own.span.start))?;
    Some((start + 1, entry))
}
