//! From `[space]` and `[[rules]]`, with what they import, to a [`Space`].

use std::path::{Path, PathBuf};

use super::error::{SourceFile, SpecError, suggestion};
use super::file::{Located, ParameterTable, RuleTable, SpaceFile, SpaceTable};
use crate::space::{Expression, MemoryRole, Owner, Parameter, Space, SpaceError, Value};

/// The spaces that come along, by name.
pub const SHIPPED_SPACES: &[(&str, &str)] = &[
    ("batch", include_str!("../../search-spaces/batch.toml")),
    ("dataloader", include_str!("../../search-spaces/dataloader.toml")),
    ("precision", include_str!("../../search-spaces/precision.toml")),
    ("torch", include_str!("../../search-spaces/torch.toml")),
];

/// Parameters and rules of all files, each with the file that it stands in.
#[derive(Default)]
struct Collected {
    files: Vec<SourceFile>,
    parameters: Vec<Definition>,
    rules: Vec<(usize, Located<String>)>,
    open: Vec<PathBuf>,
}

struct Definition {
    file: usize,
    name: Located<String>,
    table: ParameterTable,
}

/// The space of a spec's tables.
pub(super) fn build(file: &SourceFile, table: &Located<SpaceTable>, rules: &[RuleTable]) -> Result<Space, SpecError> {
    let mut collected = Collected::default();
    collected.add(file, &table.value, rules)?;
    let mut builder = Space::builder();
    for definition in &collected.parameters {
        let source = &collected.files[definition.file];
        let name = definition.name.value.clone();
        builder = match &definition.table.derive {
            Some(text) => builder.derive(name, derived(source, definition, text)?),
            None => builder.parameter(parameter(source, definition)?),
        };
    }
    for (file, text) in &collected.rules {
        builder = builder.rule(expression(&collected.files[*file], text)?);
    }
    let space = builder.build().map_err(|error| collected.place(file, table, &error))?;
    space.try_expressions().map_err(|error| collected.place(file, table, &error))?;
    if space.first().is_none() {
        return Err(collected.nothing_allowed(file, table, &space));
    }
    Ok(space)
}

impl Collected {
    fn add(&mut self, file: &SourceFile, table: &SpaceTable, rules: &[RuleTable]) -> Result<(), SpecError> {
        let at = self.files.len();
        self.files.push(file.clone());
        self.open.push(file.path.clone());
        for import in &table.import {
            self.import(file, import)?;
        }
        for (name, table) in &table.parameters {
            let definition = Definition { file: at, name: name.clone(), table: table.clone() };
            match self.parameters.iter_mut().find(|known| known.name.value == name.value) {
                Some(known) => *known = definition,
                None => self.parameters.push(definition),
            }
        }
        self.rules.extend(rules.iter().map(|rule| (at, rule.condition.clone())));
        self.open.pop();
        Ok(())
    }

    fn import(&mut self, file: &SourceFile, import: &Located<String>) -> Result<(), SpecError> {
        let imported = match SHIPPED_SPACES.iter().find(|(name, _)| *name == import.value) {
            Some((name, text)) => {
                SourceFile { path: PathBuf::from(format!("search-spaces/{name}.toml")), text: (*text).to_owned() }
            }
            None if import.value.contains('/') || import.value.ends_with(".toml") => {
                let path = file.path.parent().unwrap_or(Path::new("")).join(&import.value);
                SourceFile::read(&path)
                    .map_err(|error| SpecError { hint: error.hint, ..file.error(import.span.clone(), error.message) })?
            }
            None => {
                let names = SHIPPED_SPACES.iter().map(|(name, _)| *name);
                let hint = format!("{}, or give a path such as \"./space.toml\"", suggestion(&import.value, names));
                let error = file.error(import.span.clone(), format!("no search space `{}` comes along", import.value));
                return Err(SpecError { hint: Some(hint), ..error });
            }
        };
        if self.open.contains(&imported.path) {
            return Err(file.error(import.span.clone(), "this file imports itself, by way of others or not"));
        }
        let parsed: SpaceFile = toml::from_str(&imported.text).map_err(|error| imported.toml_error(&error))?;
        self.add(&imported, &parsed.space, &parsed.rules)
    }

    fn definition(&self, name: &str) -> Option<(&SourceFile, &Definition)> {
        let definition = self.parameters.iter().find(|known| known.name.value == name)?;
        Some((&self.files[definition.file], definition))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|definition| definition.name.value.as_str())
    }

    /// Points a mistake in the space at its place in a file.
    fn place(&self, file: &SourceFile, table: &Located<SpaceTable>, error: &SpaceError) -> SpecError {
        let message = match error {
            SpaceError::Evaluation { source, .. } => format!("{error}: {source}"),
            _ => error.to_string(),
        };
        let whole = || file.error(table.span.start..table.span.start + 1, message.clone());
        let named = |name: &str| {
            self.definition(name)
                .map(|(source, definition)| source.error(definition.name.span.clone(), message.clone()))
        };
        let (found, hint) = match error {
            SpaceError::NoParameters => {
                (None, "give at least one parameter, such as batch_size = { powers_of_two = [8, 64] }".to_owned())
            }
            SpaceError::Empty { parameter } => (named(parameter), self.hint_for_empty(parameter)),
            SpaceError::TooMany { parameter } => (named(parameter), "use a larger step, or powers of two".to_owned()),
            SpaceError::DuplicateValue { parameter, .. } => (named(parameter), "take one of them out".to_owned()),
            SpaceError::DuplicateName { name } | SpaceError::BadName { name, .. } => {
                (named(name), "rename it; `{name}` in the command can still fill any option".to_owned())
            }
            SpaceError::UnknownName { owner, name } => (
                self.expression_at(owner).map(|(source, text)| {
                    let part = Expression::parse(text.value.as_str()).ok().and_then(|e| e.find(name));
                    source
                        .error(source.inside(&text.span, &text.value, part), format!("no parameter is called `{name}`"))
                }),
                suggestion(name, self.names()),
            ),
            SpaceError::Circular { names } => {
                (names.first().and_then(|name| named(name)), "one of them must not depend on the others".to_owned())
            }
            SpaceError::Evaluation { owner, .. } => (
                self.expression_at(owner).map(|(source, text)| source.error(text.span.clone(), message.clone())),
                "guard it, for example with `x if workers > 0 else y`".to_owned(),
            ),
        };
        SpecError { hint: Some(hint), ..found.unwrap_or_else(whole) }
    }

    fn hint_for_empty(&self, parameter: &str) -> String {
        let table = self.definition(parameter).map(|(_, definition)| &definition.table);
        match table {
            Some(table) if table.range.is_some() => {
                "the first bound must not be above the last, and the step must be positive"
            }
            Some(table) if table.powers_of_two.is_some() => "no power of two lies between these bounds",
            _ => "list at least one value",
        }
        .to_owned()
    }

    fn expression_at(&self, owner: &Owner) -> Option<(&SourceFile, &Located<String>)> {
        match owner {
            Owner::When(name) => self.definition(name).and_then(|(file, at)| Some((file, at.table.when.as_ref()?))),
            Owner::Derive(name) => self.definition(name).and_then(|(file, at)| Some((file, at.table.derive.as_ref()?))),
            Owner::Rule(place) => self.rules.get(*place).map(|(file, text)| (&self.files[*file], text)),
        }
    }

    /// Finds the first rule that leaves nothing, together with those before it.
    fn nothing_allowed(&self, file: &SourceFile, table: &Located<SpaceTable>, space: &Space) -> SpecError {
        let culprit = (0..self.rules.len()).find(|&last| !self.allows_any(last + 1));
        let message = match culprit {
            Some(0) => "this rule excludes every config".to_owned(),
            Some(_) => "this rule, with those before it, excludes every config".to_owned(),
            None => "no config of the space can be evaluated".to_owned(),
        };
        let error = match culprit.and_then(|place| self.rules.get(place)) {
            Some((source, text)) => self.files[*source].error(text.span.clone(), message),
            None => file.error(table.span.start..table.span.start + 1, message),
        };
        let settings: Vec<String> =
            space.parameters().iter().map(|p| format!("{} = {}", p.name(), p.summary())).collect();
        SpecError { hint: Some(format!("the settings are {}", settings.join("; "))), ..error }
    }

    fn allows_any(&self, rules: usize) -> bool {
        let mut builder = Space::builder();
        for definition in &self.parameters {
            let source = &self.files[definition.file];
            let name = definition.name.value.clone();
            builder = match &definition.table.derive {
                Some(text) => match derived(source, definition, text) {
                    Ok(expression) => builder.derive(name, expression),
                    Err(_) => return false,
                },
                None => match parameter(source, definition) {
                    Ok(parameter) => builder.parameter(parameter),
                    Err(_) => return false,
                },
            };
        }
        for (_, text) in self.rules.iter().take(rules) {
            let Ok(rule) = Expression::parse(text.value.as_str()) else { return false };
            builder = builder.rule(rule);
        }
        builder.build().is_ok_and(|space| space.first().is_some())
    }
}

/// Reads an expression; a mistake is pointed at inside its quotes.
pub(super) fn expression(source: &SourceFile, text: &Located<String>) -> Result<Expression, SpecError> {
    Expression::parse(text.value.as_str()).map_err(|error| SpecError {
        hint: Some("expressions read like Python: `a * b <= 64 and precision != \"fp32\"`".to_owned()),
        ..source.error(source.inside(&text.span, &text.value, error.range.clone()), error.message)
    })
}

fn derived(source: &SourceFile, definition: &Definition, text: &Located<String>) -> Result<Expression, SpecError> {
    let ParameterTable { values, range, step, powers_of_two, when, derive: _, monotone } = &definition.table;
    let others = values.is_some() || range.is_some() || step.is_some() || powers_of_two.is_some();
    if others || when.is_some() || monotone.is_some() {
        return Err(SpecError {
            hint: Some(
                "`derive` stands alone; a value that is there only sometimes follows from what it is derived from"
                    .to_owned(),
            ),
            ..source.error(
                definition.name.span.clone(),
                format!("`{}` is derived and cannot have other keys", definition.name.value),
            )
        });
    }
    expression(source, text)
}

fn parameter(source: &SourceFile, definition: &Definition) -> Result<Parameter, SpecError> {
    let Definition { name, table, .. } = definition;
    let given = [table.values.is_some(), table.range.is_some(), table.powers_of_two.is_some()];
    if given.iter().filter(|given| **given).count() != 1 {
        return Err(SpecError {
            hint: Some(
                "for example { values = [8, 16] }, { range = [0, 16], step = 2 } or { powers_of_two = [8, 1024] }"
                    .to_owned(),
            ),
            ..source.error(
                name.span.clone(),
                format!("`{}` needs exactly one of `values`, `range`, `powers_of_two`, `derive`", name.value),
            )
        });
    }
    if let (Some(step), None) = (&table.step, &table.range) {
        return Err(source.error(step.span.clone(), "`step` belongs to `range`"));
    }
    let mut parameter = if let Some(values) = &table.values {
        Parameter::values(&name.value, values.value.iter().cloned())
    } else if let Some(range) = &table.range {
        range_parameter(source, &name.value, range, table.step.as_ref())?
    } else {
        powers(source, &name.value, table.powers_of_two.as_ref())?
    };
    if let Some(condition) = &table.when {
        parameter = parameter.when(expression(source, condition)?);
    }
    Ok(match table.monotone {
        Some(true) if !parameter.is_ordinal() => {
            return Err(
                source.error(name.span.clone(), format!("`{}` has texts, so none of its values is larger", name.value))
            );
        }
        Some(true) => parameter.memory(MemoryRole::Grows),
        Some(false) => parameter.memory(MemoryRole::Unknown),
        None => parameter,
    })
}

fn powers(source: &SourceFile, name: &str, bounds: Option<&Located<Vec<i64>>>) -> Result<Parameter, SpecError> {
    match bounds {
        Some(Located { value, span: _ }) if value.len() == 2 => Ok(Parameter::powers_of_two(name, value[0], value[1])),
        bounds => {
            let span = bounds.map_or(0..0, |bounds| bounds.span.clone());
            Err(source.error(span, "`powers_of_two` takes two bounds, such as [8, 1024]"))
        }
    }
}

fn range_parameter(
    source: &SourceFile,
    name: &str,
    range: &Located<Vec<Located<Value>>>,
    step: Option<&Located<Value>>,
) -> Result<Parameter, SpecError> {
    let [first, last] = range.value.as_slice() else {
        return Err(source.error(range.span.clone(), "`range` takes two bounds, such as [0, 16]"));
    };
    let one = Located { value: Value::Int(1), span: range.span.clone() };
    let step = step.unwrap_or(&one);
    let number = |located: &Located<Value>| {
        located.value.as_f64().ok_or_else(|| {
            source.error(located.span.clone(), format!("a range has numbers, and this is a {}", located.value.kind()))
        })
    };
    let (from, to, by) = (number(first)?, number(last)?, number(step)?);
    if by <= 0.0 {
        return Err(source.error(step.span.clone(), "the step of a range must be positive"));
    }
    Ok(match (&first.value, &last.value, &step.value) {
        (Value::Int(from), Value::Int(to), Value::Int(by)) => Parameter::range(name, *from, *to, *by),
        _ => Parameter::float_range(name, from, to, by),
    })
}
