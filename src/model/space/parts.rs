//! Reads and writes a space as a file: its parts, without computed results.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Derived, Expression, Parameter, Space, SpaceBuilder};

/// The parts that a space is built from, for reading.
#[derive(Deserialize)]
struct Parts {
    parameters: Vec<Parameter>,
    #[serde(default)]
    derived: Vec<Derived>,
    #[serde(default)]
    rules: Vec<Expression>,
}

/// The same parts, for writing.
#[derive(Serialize)]
struct PartsOf<'s> {
    parameters: &'s [Parameter],
    derived: &'s [Derived],
    rules: &'s [Expression],
}

/// A restriction by a function is not written.
impl Serialize for Space {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PartsOf { parameters: &self.parameters, derived: &self.derived, rules: &self.rules }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Space {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Parts { parameters, derived, rules } = Parts::deserialize(deserializer)?;
        let builder = parameters.into_iter().fold(Self::builder(), SpaceBuilder::parameter);
        let builder = derived.into_iter().fold(builder, |builder, value| builder.derive(value.name, value.expression));
        rules.into_iter().fold(builder, SpaceBuilder::rule).build().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::space::{Role, Value};

    #[test]
    fn a_space_survives_json_with_all_that_its_parameters_state() {
        let space = Space::builder()
            .parameter(Parameter::powers_of_two("batch_size", 8, 1024))
            .parameter(Parameter::range("workers", 0, 16, 2))
            .parameter(Parameter::float_range("ratio", 0.1, 0.5, 0.1).plays(None))
            .parameter(Parameter::values("whole", [1.0, 2.5]))
            .parameter(Parameter::values("precision", ["fp32", "bf16"]).full_precision("fp32").plays(Role::Precision))
            .parameter(Parameter::values("prefetch", [2, 4]).when(Expression::parse("workers > 0").unwrap()))
            .derive("pieces", Expression::parse("1024 / batch_size").unwrap())
            .rule(Expression::parse("batch_size * workers <= 8192").unwrap())
            .build()
            .unwrap();
        let read: Space = serde_json::from_str(&serde_json::to_string(&space).unwrap()).unwrap();
        for (before, after) in space.parameters().iter().zip(read.parameters()) {
            assert_eq!(before.definition(), after.definition());
            assert_eq!(before.role(), after.role());
            assert_eq!(before.memory_role(), after.memory_role());
            assert_eq!(before.in_full_precision(), after.in_full_precision());
            assert_eq!((before.value(0), before.value(1)), (after.value(0), after.value(1)));
        }
        assert_eq!(space.count().to_string(), read.count().to_string());
        assert_eq!(read.derived()[0].expression().text(), "1024 / batch_size");
        assert_eq!(read.parameters()[3].value(0), Value::Float(1.0));
    }

    #[test]
    fn parts_that_make_no_space_are_an_error() {
        for text in [
            r#"{"parameters":[]}"#,
            r#"{"parameters":[{"name":"x","levels":{"listed":[]}}]}"#,
            r#"{"parameters":[{"name":"x","levels":{"listed":[1]},"when":"y > ("}]}"#,
            r#"{"parameters":[{"name":"x","levels":{"listed":[1]}}],"rules":["z > 1"]}"#,
        ] {
            assert!(serde_json::from_str::<Space>(text).is_err(), "{text}");
        }
    }
}
