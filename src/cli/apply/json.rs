//! Finds the values of a JSON file.

use std::ops::Range;

use gputune::model::Value;

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
    // Parsing checks the syntax and limits the depth; the scanner relies on both.
    let root: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if !root.is_object() {
        return Err("it is no object of settings".to_owned());
    }
    let mut scanner = Scanner { text, at: 0, found: Vec::new() };
    scanner.value(0..0, &mut Vec::new());
    scanner.found.retain(|place| !place.path.is_empty());
    scanner.found.sort_by_key(|place| place.key.start);
    Ok(scanner.found)
}

/// Finds the values in valid JSON.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
    found: Vec<Place>,
}

impl Scanner<'_> {
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or(b'}')
    }

    fn value(&mut self, key: Range<usize>, path: &mut Vec<String>) {
        let first = self.peek();
        let start = self.at;
        let obstacle = match first {
            b'{' => {
                self.members(path);
                Some(TABLE)
            }
            b'[' => {
                self.items(path);
                Some(LIST)
            }
            b'"' => {
                self.string();
                None
            }
            _ => {
                let rest = &self.text.as_bytes()[start..];
                let ends = |byte: &u8| byte.is_ascii_whitespace() || b",]}".contains(byte);
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
                None
            }
        };
        self.found.push(Place { path: path.clone(), span: start..self.at, key, obstacle });
    }

    fn members(&mut self, path: &mut Vec<String>) {
        self.at += 1;
        while self.at < self.text.len() && self.peek() != b'}' {
            let start = self.at;
            self.string();
            let key = start..self.at;
            path.push(serde_json::from_str(&self.text[key.clone()]).unwrap_or_default());
            self.peek();
            self.at += 1;
            self.value(key, path);
            path.pop();
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at = (self.at + 1).min(self.text.len());
    }

    fn items(&mut self, path: &mut Vec<String>) {
        self.at += 1;
        let mut number = 0;
        while self.at < self.text.len() && self.peek() != b']' {
            path.push(number.to_string());
            self.value(self.at..self.at, path);
            path.pop();
            number += 1;
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at = (self.at + 1).min(self.text.len());
    }

    fn string(&mut self) {
        let bytes = self.text.as_bytes();
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return;
                }
                _ => self.at += 1,
            }
        }
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

fn add(
    text: &Text<'_>,
    own: Option<&Place>,
    table: &[String],
    (key, value): (&str, &Value),
) -> Option<(usize, String)> {
    let entry = format!("{}: {}", serde_json::Value::from(key), show(value, ""));
    if let Some(last) = text.children(table).last() {
        // Repeats the white space before the last key, so that the new key gets the same indentation.
        let before = &text.text[..last.key.start];
        let gap = &before[before.trim_end().len()..];
        return Some((last.span.end, format!(",{gap}{entry}")));
    }
    let start = own.map_or_else(|| text.text.find('{'), |own| Some(own.span.start))?;
    Some((start + 1, entry))
}
