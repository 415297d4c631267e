//! Turns one table of `[space]` into a parameter or a derived value.

use std::ops::Range;

use super::error::{SourceFile, SpecError};
use super::file::{ParameterTable, RoleKey};
use super::located::{Located, given, place};
use crate::model::{Expression, FUNCTIONS, MemoryRole, Parameter, Role, Value};
use crate::probe::BUILTINS;
use crate::probe::adapter::{Needs, Target};

/// A table of `[space]`, with its name and the index of its file: the spec, or an imported file.
pub(super) struct Definition {
    pub(super) file: usize,
    pub(super) name: Located<String>,
    pub(super) table: ParameterTable,
}

/// The result of a table of `[space]`.
pub(super) enum Part {
    Parameter(Parameter),
    Derived(String, Expression),
}

/// The most settings in a list, which a user writes by hand. A round number.
const LONGEST_LIST: usize = 10_000;
/// The most settings in a range: a round number below 2^32, since configs store the place of a setting as `u32`.
const MOST_LEVELS: f64 = 4e9;

impl ParameterTable {
    /// Returns the keys that give settings, in the order of the schema, with their places.
    fn given(&self) -> Vec<(&'static str, Range<usize>)> {
        given([
            ("values", place(&self.values)),
            ("range", place(&self.range)),
            ("powers_of_two", place(&self.powers_of_two)),
            ("derive", place(&self.derive)),
        ])
    }
}

/// Builds the parameter or derived value of a table.
pub(super) fn part(source: &SourceFile, definition: &Definition) -> Result<Part, SpecError> {
    let Definition { name, table, .. } = definition;
    if BUILTINS.iter().any(|(builtin, _)| *builtin == name.value) {
        let message = format!("`{0}` cannot be a name: {{{0}}} in [step] has another meaning", name.value);
        return Err(source.error(name.span.clone(), message, format!("rename it, for example `{}_value`", name.value)));
    }
    match table.given().as_slice() {
        [_] => {}
        [] => {
            let message = format!("`{}` needs one of `values`, `range`, `powers_of_two` and `derive`", name.value);
            let hint =
                "for example { values = [8, 16] }, { range = [0, 16], step = 2 } or { powers_of_two = [8, 1024] }";
            return Err(source.error(name.span.clone(), message, hint));
        }
        [(first, _), (second, span), ..] => {
            let message = format!("`{}` has both `{first}` and `{second}`", name.value);
            return Err(source.error(span.clone(), message, "keep one of them"));
        }
    }
    if let (Some(step), None) = (&table.step, &table.range) {
        return Err(source.error(step.span.clone(), "`step` belongs to `range`", "take it out, or give a `range`"));
    }
    match &table.derive {
        Some(text) => Ok(Part::Derived(name.value.clone(), derived(source, table, text)?)),
        None => Ok(Part::Parameter(parameter(source, definition)?)),
    }
}

/// Parses an expression. The span of an error lies inside the quotes.
pub(super) fn expression(source: &SourceFile, text: &Located<String>) -> Result<Expression, SpecError> {
    if text.value.trim().is_empty() {
        return Err(source.error(text.span.clone(), "the expression is empty", "write one such as `workers > 0`"));
    }
    Expression::parse(text.value.as_str()).map_err(|error| {
        let rest = error.range.as_ref().and_then(|range| text.value.get(range.start..)).unwrap_or_default();
        let hint = match rest.chars().next() {
            Some('=') => "write == to compare",
            Some('&') => "write `and`",
            Some('|') => "write `or`",
            Some('!') => "write `not`",
            _ if error.message.contains("function") => "write it with arguments, such as `max(workers, 1)`",
            _ if error.message.contains("recursion") => "write it with fewer brackets",
            _ => "expressions read like Python: `a * b <= 64 and precision != 'fp32'`",
        };
        let span = source.inside(&text.span, &text.value, error.range.clone());
        let reason = match error.message.as_str() {
            long if long.contains("recursion") => "it lies too deep in brackets",
            other => other,
        };
        source.error(span, format!("this is no expression: {reason}"), hint)
    })
}

/// Lists the functions that an expression can call.
pub(super) fn functions() -> String {
    format!("the functions are {}", FUNCTIONS.join(", "))
}

fn derived(source: &SourceFile, table: &ParameterTable, text: &Located<String>) -> Result<Expression, SpecError> {
    if let Some(when) = &table.when {
        let hint = "take it out: where a parameter that it is derived from is left out, so is the derived value";
        return Err(source.error(when.span.clone(), "a derived value cannot have `when`", hint));
    }
    let (monotone, full_precision, role) = (place(&table.monotone), place(&table.full_precision), place(&table.role));
    let keys = given([("monotone", monotone), ("full_precision", full_precision), ("role", role)]);
    if let Some((key, span)) = keys.into_iter().next() {
        let message = format!("a derived value cannot have `{key}`");
        return Err(source.error(span, message, "give it to the parameters that it is derived from"));
    }
    expression(source, text)
}

fn parameter(source: &SourceFile, definition: &Definition) -> Result<Parameter, SpecError> {
    let Definition { name, table, .. } = definition;
    let mut parameter = if let Some(values) = &table.values {
        listed(source, &name.value, values)?
    } else if let Some(range) = &table.range {
        range_parameter(source, &name.value, range, table.step.as_ref())?
    } else {
        powers(source, &name.value, table.powers_of_two.as_ref())?
    };
    if let Some(condition) = &table.when {
        parameter = parameter.when(expression(source, condition)?);
    }
    let target = table.apply.as_ref().and_then(|target| Target::parse(&target.value).ok());
    if target.is_some_and(|target| ["dataloader.batch_size", "keras.batch_size"].contains(&target.name)) {
        parameter = parameter.batch_size();
    }
    if let Some(fact) = target.and_then(Target::fact) {
        parameter = parameter.told_by(fact);
    }
    if target.is_some_and(|target| target.needs != Needs::NewProcess) {
        parameter = parameter.live();
    }
    parameter = match (&table.role, target.and_then(role_of)) {
        (Some(stated), _) => with_role(source, &name.value, parameter, stated)?,
        (None, Some(role)) => parameter.plays(role),
        (None, None) => parameter,
    };
    if let Some(full) = &table.full_precision {
        parameter = parameter.full_precision(full.value.clone());
    }
    let memory = match &table.monotone {
        Some(monotone) if monotone.value && !parameter.is_ordinal() => {
            let message = format!("`{}` has settings that are no numbers, so none is larger than another", name.value);
            return Err(source.error(monotone.span.clone(), message, "take `monotone` out"));
        }
        Some(monotone) if monotone.value => Some(MemoryRole::Grows),
        Some(_) => Some(MemoryRole::Unknown),
        None => target.and_then(|target| target.memory),
    };
    Ok(match memory {
        Some(role) => parameter.memory(role),
        None => parameter,
    })
}

/// Adds the stated role to a parameter.
fn with_role(
    source: &SourceFile,
    name: &str,
    parameter: Parameter,
    stated: &Located<RoleKey>,
) -> Result<Parameter, SpecError> {
    let role = stated.value.role();
    if role.is_some_and(Role::takes_numbers) && !parameter.is_ordinal() {
        let message = format!("`{name}` has settings that are no numbers, and this role is one for numbers");
        let hint = "take `role` out, or write role = \"precision\" or role = \"none\"";
        return Err(source.error(stated.span.clone(), message, hint));
    }
    Ok(parameter.plays(role))
}

/// Returns the role of a target in a training step.
fn role_of(target: &Target) -> Option<Role> {
    const ROLES: &[(&str, Role)] = &[
        ("dataloader.batch_size", Role::Batch),
        ("dataloader.num_workers", Role::Workers),
        ("dataloader.prefetch_factor", Role::Prefetch),
        ("torch.precision", Role::Precision),
        ("keras.batch_size", Role::Batch),
        ("keras.mixed_precision", Role::Precision),
        ("torch.grad_accumulation", Role::Pieces),
    ];
    ROLES.iter().find(|(name, _)| *name == target.name).map(|(_, role)| *role)
}

fn listed(source: &SourceFile, name: &str, values: &Located<Vec<Located<Value>>>) -> Result<Parameter, SpecError> {
    let list = &values.value;
    if list.is_empty() {
        return Err(source.error(values.span.clone(), format!("`{name}` has no settings"), "list at least one value"));
    }
    if list.len() > LONGEST_LIST {
        let message = format!("`{name}` lists more than {LONGEST_LIST} settings");
        return Err(source.error(values.span.clone(), message, "use `range` with a `step`"));
    }
    let same = |a: &Value, b: &Value| a == b || (a.as_f64().is_some() && a.as_f64() == b.as_f64());
    let twice = list.iter().enumerate().find(|(at, entry)| list[..*at].iter().any(|e| same(&e.value, &entry.value)));
    match twice {
        Some((_, entry)) => {
            let message = format!("`{name}` has the setting {} twice", entry.value);
            Err(source.error(entry.span.clone(), message, "take one of them out"))
        }
        None => Ok(Parameter::values(name, list.iter().map(|entry| entry.value.clone()))),
    }
}

fn powers(source: &SourceFile, name: &str, bounds: Option<&Located<Vec<i64>>>) -> Result<Parameter, SpecError> {
    let span = bounds.map_or(0..0, |bounds| bounds.span.clone());
    let Some(&[low, high]) = bounds.map(|bounds| bounds.value.as_slice()) else {
        return Err(source.error(span, "`powers_of_two` takes two bounds", "write powers_of_two = [8, 1024]"));
    };
    let parameter = Parameter::powers_of_two(name, low, high);
    if low > high {
        let message = format!("`{name}` has no settings: {low} is above {high}");
        return Err(source.error(span, message, format!("write powers_of_two = [{high}, {low}]")));
    }
    if parameter.is_empty() {
        let message = format!("`{name}` has no settings: no power of two lies from {low} to {high}");
        return Err(source.error(span, message, "write powers_of_two = [8, 1024]"));
    }
    Ok(parameter)
}

fn range_parameter(
    source: &SourceFile,
    name: &str,
    range: &Located<Vec<Located<Value>>>,
    step: Option<&Located<Value>>,
) -> Result<Parameter, SpecError> {
    let [first, last] = range.value.as_slice() else {
        let message = "`range` takes two bounds, the first and the last setting";
        return Err(source.error(range.span.clone(), message, "write range = [0, 16], step = 2"));
    };
    let one = Located { value: Value::Int(1), span: range.span.clone() };
    let step = step.unwrap_or(&one);
    let number = |located: &Located<Value>| {
        located.value.as_f64().ok_or_else(|| {
            let message = format!("a range has numbers, and this is a {}", located.value.kind());
            source.error(located.span.clone(), message, "write range = [0, 16], step = 2, without quotes")
        })
    };
    let (from, to, by) = (number(first)?, number(last)?, number(step)?);
    if by <= 0.0 {
        let hint = "write the smaller bound first, and a step such as 2";
        return Err(source.error(step.span.clone(), "the step of a range must be positive", hint));
    }
    if from > to {
        let message = format!("`{name}` has no settings: {} is above {}", first.value, last.value);
        let hint = format!("write range = [{}, {}]", last.value, first.value);
        return Err(source.error(range.span.clone(), message, hint));
    }
    if (to - from) / by > MOST_LEVELS {
        let message = format!("`{name}` has more settings than can be counted");
        return Err(source.error(range.span.clone(), message, "use a larger `step`, or `powers_of_two`"));
    }
    Ok(match (&first.value, &last.value, &step.value) {
        (Value::Int(from), Value::Int(to), Value::Int(by)) => Parameter::range(name, *from, *to, *by),
        _ => Parameter::float_range(name, from, to, by),
    })
}
