//! Parts of a spec that keep their places: a value, and a table with arbitrary keys.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

/// Gives a type the JSON Schema of another type.
macro_rules! schema_of {
    ($type:ty => $written:ty, $parameter:ident: $bound:path) => {
        impl<$parameter: $bound> JsonSchema for $type {
            fn inline_schema() -> bool {
                <$written as JsonSchema>::inline_schema()
            }

            fn schema_name() -> Cow<'static, str> {
                <$written as JsonSchema>::schema_name()
            }

            fn schema_id() -> Cow<'static, str> {
                <$written as JsonSchema>::schema_id()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$written as JsonSchema>::json_schema(generator)
            }
        }
    };
}

schema_of!(Located<T> => T, T: JsonSchema);
schema_of!(Entries<T> => BTreeMap<String, T>, T: JsonSchema);
pub(super) use schema_of;

/// A value with its place in the file, in bytes.
#[derive(Debug, Clone)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        let span = spanned.span();
        Ok(Self { value: spanned.into_inner(), span })
    }
}

/// Returns the place of a key's value, if the key is given.
pub(super) fn place<T>(key: &Option<Located<T>>) -> Option<Range<usize>> {
    key.as_ref().map(|key| key.span.clone())
}

/// Returns the names and places of the keys that are given.
pub(super) fn given<const N: usize>(
    keys: [(&'static str, Option<Range<usize>>); N],
) -> Vec<(&'static str, Range<usize>)> {
    keys.into_iter().filter_map(|(name, place)| Some((name, place?))).collect()
}

/// A table with arbitrary keys, in the order of the file.
#[derive(Debug, Clone)]
pub(super) struct Entries<T>(pub(super) Vec<(Located<String>, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for InOrder<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<Located<String>, T>()? {
                    entries.push(entry);
                }
                entries.sort_by_key(|(name, _)| name.span.start);
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(InOrder(PhantomData))
    }
}
