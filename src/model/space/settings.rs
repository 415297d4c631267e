//! The names and values of one config, as a probe, a file or a person gets them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Value;

/// Names with their values, in the order of the space. Inactive parameters are absent; derived values are included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    entries: Vec<(String, Value)>,
}

impl Settings {
    /// Returns the value of a name; `None` if the parameter is inactive or unknown.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the whole number of a name; `None` also if its value is not a whole number.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_i64()
    }

    /// Returns the string of a name; `None` also if its value is not a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the settings without the derived values of a space.
    #[must_use]
    pub fn chosen(&self, space: &super::Space) -> Self {
        let derived: Vec<&str> = space.derived().iter().map(super::Derived::name).collect();
        self.without(&derived)
    }

    /// Returns the settings without these names.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        Self { entries: self.entries.iter().filter(|(name, _)| !names.contains(&name.as_str())).cloned().collect() }
    }

    /// Returns these settings with some replaced; the space's conditions and derived values are applied again.
    ///
    /// The new values need not be in the space. A parameter whose condition no longer holds is dropped. A parameter whose
    /// condition now holds gets no value.
    #[must_use]
    pub fn changed(&self, changes: &[(&str, &Value)], space: &super::Space) -> Self {
        let mut changed = self.chosen(space);
        for (name, value) in &mut changed.entries {
            if let Some((_, new)) = changes.iter().find(|(changed, _)| changed == name) {
                *value = (*new).clone();
            }
        }
        for parameter in space.parameters() {
            let holds = parameter.condition().is_none_or(|when| when.holds(|name| changed.get(name)).unwrap_or(false));
            changed.entries.retain(|(name, _)| holds || name != parameter.name());
        }
        for derived in space.derived() {
            if let Ok(value) = derived.expression().value(|name| changed.get(name)) {
                changed.push(derived.name(), value);
            }
        }
        changed
    }

    pub(in crate::model) fn push(&mut self, name: &str, value: Value) {
        self.entries.push((name.to_owned(), value));
    }

    /// Returns true if nothing is set.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the settings in one line: `batch_size=64 workers=2`; `as it is` if nothing is set. Parameters that set nothing are left
    /// out.
    pub fn line(&self) -> String {
        let set = self.iter().filter(|(_, value)| !value.is_as_it_is());
        let words: Vec<String> = set.map(|(name, value)| format!("{name}={}", value.in_line())).collect();
        if words.is_empty() { super::AS_IT_IS.to_owned() } else { words.join(" ") }
    }
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Settings {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        Self { entries: entries.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> de::Visitor<'de> for Entries {
            type Value = Settings;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("names with their values")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
                let mut settings = Settings::default();
                while let Some((name, value)) = map.next_entry()? {
                    settings.entries.push((name, value));
                }
                Ok(settings)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_only_what_is_set() {
        let line = |settings: &[(&str, Value)]| Settings::from_iter(settings.iter().cloned()).line();
        let (two, unset) = (Value::Int(2), Value::from("as it is"));
        assert_eq!(line(&[("workers", two), ("prefetch", unset.clone())]), "workers=2");
        assert_eq!(line(&[("prefetch", unset)]), "as it is");
        assert_eq!(line(&[]), "as it is");
    }
}
