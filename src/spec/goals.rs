//! Entries of `[objective]` that can be written short or as a table: a metric to aim at, and a weight.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use super::located::Located;
use crate::model::Direction;

/// A metric of `pareto`: its name, or a table with its direction.
#[derive(Debug)]
pub(super) struct Aim {
    pub(super) metric: String,
    pub(super) direction: Option<Direction>,
}

/// A metric whose direction is stated.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { metric = \"loss\", direction = \"minimize\" }")]
struct AimTable {
    /// The metric's name.
    metric: String,
    /// Which is better: `maximize` or `minimize`. Needed where the metric is not one that gputune knows.
    #[serde(default)]
    direction: Option<Direction>,
}

/// A weight of `weights`: the number, or a table with the direction of the metric.
#[derive(Debug)]
pub(super) struct Weight {
    pub(super) weight: Located<f64>,
    pub(super) direction: Option<Direction>,
}

/// A weight of a metric whose direction is stated.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { weight = 0.5, direction = \"minimize\" }")]
struct WeightTable {
    /// How much the metric counts, beside the other weights.
    weight: Located<f64>,
    /// Which is better: `maximize` or `minimize`. Needed where the metric is not one that gputune knows.
    #[serde(default)]
    direction: Option<Direction>,
}

impl<'de> Deserialize<'de> for Aim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> de::Visitor<'de> for Either {
            type Value = Aim;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a metric, or a table")
            }

            fn visit_str<E: de::Error>(self, metric: &str) -> Result<Aim, E> {
                Ok(Aim { metric: metric.to_owned(), direction: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Aim, A::Error> {
                let AimTable { metric, direction } = AimTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Aim { metric, direction })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        /// A bare number stands where its entry stands.
        fn bare(weight: f64) -> Weight {
            Weight { weight: Located { value: weight, span: 0..0 }, direction: None }
        }

        impl<'de> de::Visitor<'de> for Either {
            type Value = Weight;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a table")
            }

            #[expect(clippy::cast_precision_loss, reason = "a weight")]
            fn visit_i64<E: de::Error>(self, weight: i64) -> Result<Weight, E> {
                Ok(bare(weight as f64))
            }

            fn visit_f64<E: de::Error>(self, weight: f64) -> Result<Weight, E> {
                Ok(bare(weight))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Weight, A::Error> {
                let WeightTable { weight, direction } = WeightTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Weight { weight, direction })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Aim {
    fn schema_name() -> Cow<'static, str> {
        "Aim".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<AimTable>();
        json_schema!({ "description": "A metric by its name, or with its direction.", "anyOf": [{ "type": "string" }, table] })
    }
}

impl JsonSchema for Weight {
    fn schema_name() -> Cow<'static, str> {
        "Weight".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<WeightTable>();
        json_schema!({
            "description": "How much a metric counts: a number, or a table that also has its direction.",
            "anyOf": [{ "type": "number", "exclusiveMinimum": 0 }, table],
        })
    }
}
