//! Puts a space together: checks names, resolves expressions and finds circular dependencies.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde::Deserialize;

use super::expression::KEYWORDS;
use super::plan::{Graph, Plan, Slots, is_absent};
use super::{Derived, Expression, ExpressionError, FUNCTIONS, Parameter, Space, Value};

/// The owner of an expression in a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The condition of the parameter of this name.
    When(String),
    /// The derived value of this name.
    Derive(String),
    /// The rule at this place.
    Rule(usize),
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::When(name) => write!(f, "the condition of `{name}`"),
            Self::Derive(name) => write!(f, "the derived value `{name}`"),
            Self::Rule(place) => write!(f, "rule {}", place + 1),
        }
    }
}

/// The error for parameters and rules that do not make a space.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// There is no parameter.
    #[error("a space needs at least one parameter")]
    NoParameters,
    /// A parameter has no settings.
    #[error("`{0}` has no settings")]
    Empty(String),
    /// A parameter has more settings than a level can count.
    #[error("`{0}` has more than 2^32 - 2 settings")]
    TooMany(String),
    /// A parameter lists a setting twice.
    #[error("`{0}` has the setting {1} twice")]
    DuplicateValue(String, Value),
    /// Two parameters or derived values have the same name.
    #[error("`{0}` is there twice")]
    DuplicateName(String),
    /// A name that expressions could not use, and why.
    #[error("`{0}` cannot be a name: {1}")]
    BadName(String, &'static str),
    /// An expression uses a name that the space does not have.
    #[error("{0} names `{1}`, which the space does not have")]
    UnknownName(Owner, String),
    /// Derived values or conditions depend on themselves: the names of the circle, in order.
    #[error("{} depend on each other in a circle", quoted(.0))]
    Circular(Vec<String>),
    /// An expression cannot be evaluated for a config.
    #[error("{owner} cannot be evaluated for {settings}")]
    Evaluation {
        /// The owner of the expression.
        owner: Owner,
        /// The settings, in one line.
        settings: String,
        /// What is wrong.
        source: ExpressionError,
    },
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Collects the parts of a [`Space`].
#[derive(Default, Deserialize)]
#[must_use]
pub struct SpaceBuilder {
    pub(super) parameters: Vec<Parameter>,
    #[serde(default)]
    pub(super) derived: Vec<Derived>,
    #[serde(default)]
    pub(super) rules: Vec<Expression>,
}

impl TryFrom<SpaceBuilder> for Space {
    type Error = SpaceError;

    fn try_from(parts: SpaceBuilder) -> Result<Self, SpaceError> {
        parts.build()
    }
}

impl SpaceBuilder {
    /// Adds a parameter.
    pub fn parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// Adds a value that is computed from other values.
    ///
    /// It is absent if it depends on an inactive parameter.
    pub fn derive(mut self, name: impl Into<String>, expression: Expression) -> Self {
        self.derived.push(Derived { name: name.into(), expression });
        self
    }

    /// Adds a condition that every config must meet.
    ///
    /// A rule that uses an inactive parameter does not apply. A rule that cannot be evaluated forbids the config.
    pub fn rule(mut self, condition: Expression) -> Self {
        self.rules.push(condition);
        self
    }

    /// Builds the space from these parts.
    ///
    /// # Errors
    /// See [`SpaceError`]. This does not check that the rules allow any config; [`Space::first`] shows it.
    pub fn build(self) -> Result<Space, SpaceError> {
        if self.parameters.is_empty() {
            return Err(SpaceError::NoParameters);
        }
        let mut slots = HashMap::new();
        let names = self.parameters.iter().map(Parameter::name).chain(self.derived.iter().map(Derived::name));
        for (slot, name) in names.enumerate() {
            check_name(name)?;
            if slots.insert(name.to_owned(), slot).is_some() {
                return Err(SpaceError::DuplicateName(name.to_owned()));
            }
        }
        for parameter in &self.parameters {
            check_settings(parameter)?;
        }
        let graph = Graph::resolve(&self, &slots)?;
        let all: Vec<usize> = (0..self.parameters.len()).collect();
        let Self { parameters, derived, rules } = self;
        Ok(Space {
            parameters,
            derived,
            rules,
            only: None,
            slots,
            plan: Plan::new(&graph, &all),
            graph,
            found: super::Found::default(),
            identity: Arc::default(),
        })
    }
}

fn check_name(name: &str) -> Result<(), SpaceError> {
    let reason = if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        "it must start with a letter"
    } else if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        "letters, digits and underscores only, so that expressions can use it"
    } else if KEYWORDS.contains(&name) {
        "it is a word of the expression language"
    } else if FUNCTIONS.contains(&name) {
        "it is a function of the expression language"
    } else {
        return Ok(());
    };
    Err(SpaceError::BadName(name.to_owned(), reason))
}

fn check_settings(parameter: &Parameter) -> Result<(), SpaceError> {
    let name = parameter.name().to_owned();
    if parameter.is_empty() {
        return Err(SpaceError::Empty(name));
    }
    if parameter.len() >= u64::from(super::INACTIVE) {
        return Err(SpaceError::TooMany(name));
    }
    match parameter.duplicate() {
        Some(value) => Err(SpaceError::DuplicateValue(name, value.clone())),
        None => Ok(()),
    }
}

/// Returns each expression with its owner: conditions, then derived values, then rules.
fn expressions<'s>(
    parameters: &'s [Parameter],
    derived: &'s [Derived],
    rules: &'s [Expression],
) -> impl Iterator<Item = (Owner, Option<&'s Expression>)> {
    let conditions = parameters.iter().map(|at| (Owner::When(at.name().to_owned()), at.condition()));
    let derived = derived.iter().map(|value| (Owner::Derive(value.name.clone()), Some(&value.expression)));
    let rules = rules.iter().enumerate().map(|(place, rule)| (Owner::Rule(place), Some(rule)));
    conditions.chain(derived).chain(rules)
}

impl Graph {
    fn resolve(parts: &SpaceBuilder, slots: &HashMap<String, usize>) -> Result<Self, SpaceError> {
        let SpaceBuilder { parameters, derived, rules } = parts;
        let mut direct = Vec::new();
        for (owner, expression) in expressions(parameters, derived, rules) {
            let mut needs = Vec::new();
            for name in expression.into_iter().flat_map(Expression::names) {
                let Some(&slot) = slots.get(name) else {
                    return Err(SpaceError::UnknownName(owner, name.clone()));
                };
                needs.push(slot);
            }
            direct.push(needs);
        }
        let names = |slot: usize| {
            parameters.get(slot).map_or_else(|| derived[slot - parameters.len()].name.clone(), |p| p.name().to_owned())
        };
        let mut closure = Closure { direct: &direct, parameters: parameters.len(), order: Vec::new() };
        for slot in 0..parameters.len() + derived.len() {
            closure
                .visit(slot, &mut Vec::new())
                .map_err(|circle| SpaceError::Circular(circle.into_iter().map(names).collect()))?;
        }
        Ok(Self {
            conditions: (0..parameters.len()).map(|at| closure.needs(&direct[at])).collect(),
            derived: (0..derived.len()).map(|at| closure.needs(&direct[parameters.len() + at])).collect(),
            rules: direct[parameters.len() + derived.len()..].iter().map(|needs| closure.needs(needs)).collect(),
            derived_order: closure.order.iter().filter_map(|slot| slot.checked_sub(parameters.len())).collect(),
        })
    }
}

/// A depth-first search over dependencies; `order` lists each slot after its dependencies.
struct Closure<'d> {
    direct: &'d [Vec<usize>],
    parameters: usize,
    order: Vec<usize>,
}

impl Closure<'_> {
    fn visit(&mut self, slot: usize, path: &mut Vec<usize>) -> Result<(), Vec<usize>> {
        if let Some(start) = path.iter().position(|&earlier| earlier == slot) {
            return Err(path[start..].to_vec());
        }
        if self.order.contains(&slot) {
            return Ok(());
        }
        path.push(slot);
        for &need in &self.direct[slot] {
            self.visit(need, path)?;
        }
        path.pop();
        self.order.push(slot);
        Ok(())
    }

    /// Returns the parameters that slots depend on, including the parameters of their conditions.
    fn needs(&self, slots: &[usize]) -> Vec<usize> {
        let mut open = slots.to_vec();
        let mut seen = BTreeSet::new();
        while let Some(slot) = open.pop() {
            if seen.insert(slot) {
                open.extend(&self.direct[slot]);
            }
        }
        seen.range(..self.parameters).copied().collect()
    }
}

impl Space {
    /// Evaluates all expressions on some configs, including configs that the rules forbid.
    ///
    /// # Errors
    /// The first expression that cannot be evaluated, with its owner and the settings.
    pub fn try_expressions(&self) -> Result<(), SpaceError> {
        /// Configs tried: a round number, to keep building a space quick. Errors in other configs are reported as they occur.
        const CONFIGS: u64 = 2000;
        let mut slots = Slots::new(self);
        let size = self.raw_size().unwrap_or(1 << 126);
        let order = super::Permutation::new(size, 0);
        let picks = (0..u128::from(CONFIGS).min(size)).filter_map(|place| order.at(place)).chain([0, size - 1]);
        for levels in picks.filter_map(|index| self.raw_levels(index)) {
            self.plan.run(self, &mut slots, &levels);
            self.try_one(&slots)?;
        }
        Ok(())
    }

    fn try_one(&self, slots: &Slots) -> Result<(), SpaceError> {
        let lookup = |name: &str| super::plan::lookup(self, slots, name);
        for (owner, expression) in expressions(&self.parameters, &self.derived, &self.rules) {
            let Some(expression) = expression.filter(|known| !is_absent(self, slots, known)) else { continue };
            let result = match owner {
                Owner::Derive(_) => expression.value(lookup).map(|_| ()),
                Owner::When(_) | Owner::Rule(_) => expression.holds(lookup).map(|_| ()),
            };
            if let Err(source) = result {
                let named: super::Settings =
                    expression.names().iter().filter_map(|name| Some((name.clone(), lookup(name)?.clone()))).collect();
                return Err(SpaceError::Evaluation { owner, settings: named.line(), source });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::space::{Role, Walk};

    fn expression(text: &str) -> Expression {
        Expression::parse(text).unwrap()
    }

    impl Space {
        /// Builds a space for a test: its parameters, the derived values by name, and the rules.
        pub(crate) fn built(
            parameters: impl IntoIterator<Item = Parameter>,
            derived: &[(&str, &str)],
            rules: &[&str],
        ) -> Result<Self, SpaceError> {
            let builder = parameters.into_iter().fold(Self::builder(), SpaceBuilder::parameter);
            let builder = derived.iter().fold(builder, |builder, (name, text)| builder.derive(*name, expression(text)));
            rules.iter().fold(builder, |builder, text| builder.rule(expression(text))).build()
        }
    }

    #[test]
    fn circles_are_refused_and_named() {
        let error = Space::built([Parameter::values("x", [1])], &[("a", "b + 1"), ("b", "a + x")], &[]).unwrap_err();
        assert_eq!(error.to_string(), "`a`, `b` depend on each other in a circle");
        let when = |(name, text): (&str, &str)| Parameter::values(name, [1]).when(expression(text));
        let error = Space::new([("a", "b > 0"), ("b", "a > 0")].map(when));
        assert!(matches!(error, Err(SpaceError::Circular { .. })), "{error:?}");
    }

    #[test]
    fn unusable_names_are_refused() {
        for name in ["", "1a", "a-b", "min", "not", "a b"] {
            assert!(matches!(Space::new([Parameter::values(name, [1])]), Err(SpaceError::BadName { .. })), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_evaluated_is_found_with_its_settings() {
        let space = Space::built([Parameter::range("workers", 0, 2, 1)], &[], &["8 / workers > 1"]).unwrap();
        let error = space.try_expressions().unwrap_err();
        assert!(error.to_string().contains("workers=0"), "{error}");
    }

    #[test]
    fn derived_values_may_be_used_before_they_are_written() {
        let derived = [("b", "a * 10"), ("a", "x + 1")];
        let space = Space::built([Parameter::values("x", [2, 3])], &derived, &["b > 30"]).unwrap();
        let all: Vec<String> = Walk::new(&space).map(|config| space.settings(&config).line()).collect();
        assert_eq!(all, ["x=3 b=40 a=4"]);
    }

    #[test]
    fn a_space_survives_json_with_all_that_its_parameters_state() {
        let parameters = [
            Parameter::powers_of_two("batch_size", 8, 1024),
            Parameter::range("workers", 0, 16, 2),
            Parameter::float_range("ratio", 0.1, 0.5, 0.1).plays(None),
            Parameter::values("whole", [1.0, 2.5]),
            Parameter::values("precision", ["fp32", "bf16"]).full_precision("fp32").plays(Role::Precision),
            Parameter::values("prefetch", [2, 4]).when(expression("workers > 0")),
        ];
        let derived = [("pieces", "1024 / batch_size")];
        let space = Space::built(parameters, &derived, &["batch_size * workers <= 8192"]).unwrap();
        let read: Space = serde_json::from_str(&serde_json::to_string(&space).unwrap()).unwrap();
        for (before, after) in space.parameters().iter().zip(read.parameters()) {
            assert_eq!(before.definition(), after.definition());
            assert_eq!((before.role(), before.memory_role()), (after.role(), after.memory_role()));
            assert_eq!(before.in_full_precision(), after.in_full_precision());
            assert_eq!((before.value(0), before.value(1)), (after.value(0), after.value(1)));
        }
        assert_eq!(space.count(), read.count());
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
