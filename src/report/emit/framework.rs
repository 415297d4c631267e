//! Writes settings under the names of a training framework, with notes on settings that the framework has no name for.

use serde_json::{Map, Value as Json, json};

use super::knob::{Entry, Knob, entries};
use super::{Chosen, Written, yaml_float, yaml_key};
use crate::model::{Precision, Value};

/// Keys with their values; an error says why the setting has no keys.
type Pairs = Result<Vec<(&'static str, Json)>, String>;

/// The names of one knob in a framework.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub(crate) knob: Knob,
    /// Returns the keys with their values; a key has dots for nested tables.
    pub(crate) write: fn(&Value) -> Pairs,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Framework {
    pub(super) name: &'static str,
    /// The framework's names for the knobs.
    pub(crate) keys: &'static [Key],
    /// Further settings of the framework, by table. A parameter with the name of such a setting is written unchanged.
    pub(super) own: &'static [(&'static str, &'static str)],
    /// Hints for knobs that the framework has no name for: the place to set them.
    pub(super) elsewhere: &'static [(Knob, &'static str)],
}

/// Makes the row of a key that takes the value unchanged.
macro_rules! plain_key {
    ($knob:ident, $key:literal) => {
        Key { knob: Knob::$knob, write: |value| Ok(vec![($key, json!(value))]) }
    };
}
pub(super) use plain_key;

/// What several frameworks leave to the script.
pub(super) const LOADER: &str = "it belongs to the script's DataLoader";
pub(super) const TF32: &str = "write torch.set_float32_matmul_precision(\"high\") in the script";

pub(super) fn precision(value: &Value) -> Result<Precision, String> {
    let named = match value {
        Value::Text(text) => Precision::named(text),
        Value::Bool(false) => Some(Precision::Fp32),
        Value::Int(bits) => Precision::named(&bits.to_string()),
        Value::Bool(true) | Value::Float(_) => None,
    };
    named.ok_or_else(|| "no framework has a precision of this name".to_owned())
}

impl Framework {
    /// Returns the settings under the framework's names, in the order of its table, and the notes.
    pub(super) fn map(&self, chosen: &Chosen<'_>) -> (Vec<(String, Json)>, Vec<String>) {
        let (entries, mut notes) = entries(chosen);
        let mut found: Vec<(usize, String, Json)> = Vec::new();
        for entry in &entries {
            match self.place(entry) {
                Ok(pairs) => {
                    for (order, key, value) in pairs {
                        if let Some((_, _, first)) = found.iter().find(|(_, known, _)| *known == key) {
                            if *first != value {
                                let Entry { name, value, .. } = entry;
                                notes.push(format!("`{name}` = {value} is left out: another parameter sets `{key}`"));
                            }
                        } else {
                            found.push((order, key, value));
                        }
                    }
                }
                Err(reason) => notes.push(format!("`{}` = {} is left out: {reason}", entry.name, entry.value)),
            }
        }
        found.sort_by_key(|(order, ..)| *order);
        (found.into_iter().map(|(_, key, value)| (key, value)).collect(), notes)
    }

    /// Returns the keys and values of a setting, each with its place in the table.
    fn place(&self, entry: &Entry) -> Result<Vec<(usize, String, Json)>, String> {
        for (table, names) in self.own {
            if names.split_whitespace().any(|name| name == entry.name) {
                let dot = if table.is_empty() { "" } else { "." };
                return Ok(vec![(self.keys.len(), format!("{table}{dot}{}", entry.name), json!(entry.value))]);
            }
        }
        let key = entry.knob.and_then(|knob| self.keys.iter().enumerate().find(|(_, key)| key.knob == knob));
        if let Some((order, key)) = key {
            let pairs = (key.write)(&entry.value)?;
            return Ok(pairs.into_iter().map(|(key, value)| (order, key.to_owned(), value)).collect());
        }
        let elsewhere = self.elsewhere.iter().find(|(knob, _)| Some(*knob) == entry.knob);
        Err(elsewhere.map_or_else(
            || format!("{} has no setting for it; set it in the script", self.name),
            |(_, place)| (*place).to_owned(),
        ))
    }

    /// Writes one JSON object, in which dots become nested objects.
    pub(super) fn write_json(&self, chosen: &Chosen<'_>) -> Written {
        let (pairs, notes) = self.map(chosen);
        let mut object = Map::new();
        pairs.into_iter().for_each(|(key, value)| insert(&mut object, &key, value));
        // Objects of scalars can always be serialised.
        Written { text: serde_json::to_string_pretty(&object).unwrap_or_default() + "\n", notes }
    }

    /// Writes YAML with the notes as comments; the pairs in `first` come first.
    pub(super) fn write_yaml(&self, chosen: &Chosen<'_>, first: &[(&str, Json)], comments: &[&str]) -> Written {
        let (pairs, notes) = self.map(chosen);
        let mut text = String::new();
        for line in comments.iter().map(|line| (*line).to_owned()).chain(notes.iter().cloned()) {
            text += &format!("# {}\n", line.replace(['\n', '\r'], " "));
        }
        let mut object = Map::new();
        let mut order: Vec<String> = Vec::new();
        let given = first.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        for (key, value) in given.chain(pairs) {
            let head = key.split('.').next().unwrap_or(&key).to_owned();
            if !order.contains(&head) {
                order.push(head);
            }
            insert(&mut object, &key, value);
        }
        for head in order {
            yaml_lines(&head, object.get(&head).unwrap_or(&Json::Null), 0, &mut text);
        }
        Written { text, notes: Vec::new() }
    }
}

fn insert(object: &mut Map<String, Json>, key: &str, value: Json) {
    match key.split_once('.') {
        None => {
            object.insert(key.to_owned(), value);
        }
        Some((head, rest)) => {
            let inner = object.entry(head).or_insert_with(|| Json::Object(Map::new()));
            if let Json::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// Writes a key with its value; strings are quoted as in JSON.
fn yaml_lines(key: &str, value: &Json, depth: usize, text: &mut String) {
    let (indent, name) = ("  ".repeat(depth), yaml_key(key));
    match value {
        Json::Object(object) if !object.is_empty() => {
            *text += &format!("{indent}{name}:\n");
            object.iter().for_each(|(key, value)| yaml_lines(key, value, depth + 1, text));
        }
        Json::Number(number) if number.is_f64() => {
            let number = yaml_float(number.as_f64().unwrap_or_default());
            *text += &format!("{indent}{name}: {number}\n");
        }
        value => *text += &format!("{indent}{name}: {value}\n"),
    }
}
