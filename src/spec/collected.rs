//! Collects the parameters and rules of a spec and of the files that it imports, and finds where a mistake in the space lies.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::error::{SourceFile, SpecError, suggestion};
use super::file::{RuleTable, SpaceFile, SpaceTable};
use super::located::Located;
use super::parameter::{Definition, Part, expression, functions, part};
use super::reading;
use crate::model::{ExpressionError, Owner, Space, SpaceBuilder, SpaceError};

/// Includes the bundled spaces of these names.
macro_rules! shipped {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../../search-spaces/", $name, ".toml")))),*] };
}

/// The bundled spaces, by name.
pub const SHIPPED_SPACES: &[(&str, &str)] = shipped! {
    "accelerate" "batch" "dataloader" "ddp" "deepspeed" "deepspeed-parallel" "fsdp" "huggingface" "jax" "keras"
    "keras-fit" "lightning" "megatron" "nccl" "precision" "torch" "torch-adapter" "torchrun" "torchtitan"
};

/// What to do about an expression whose error contains one of these words.
const HINTS: &[(&str, &str)] = &[
    ("true or false", "compare it with a number, for example `... > 0`"),
    ("/ 0", "guard it, for example `1024 / workers if workers > 0 else 0`"),
    ("% 0", "guard it, for example `1024 / workers if workers > 0 else 0`"),
    ("unsupported types", "numbers and texts do not mix: compare a text with ==, and write numbers without quotes"),
    ("no boolean, number or text", "write an expression that gives one number, text or boolean"),
];

/// Parameters and rules of all files, each with the file that it stands in.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) files: Vec<SourceFile>,
    pub(super) parameters: Vec<Definition>,
    pub(super) rules: Vec<(usize, Located<String>)>,
    /// The number of rules at the end that the user did not write: they follow from `apply`. Errors about them point at that
    /// `apply`.
    pub(super) implied_rules: usize,
    /// The files that are being read, so that a file which imports itself is recognised.
    open: Vec<PathBuf>,
    /// The files that have been read; importing one again adds nothing.
    done: Vec<PathBuf>,
}

impl Collected {
    pub(super) fn add(&mut self, file: &SourceFile, table: &SpaceTable, rules: &[RuleTable]) -> Result<(), SpecError> {
        let at = self.files.len();
        self.files.push(file.clone());
        self.open.push(identity(&file.path));
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
        self.done.extend(self.open.pop());
        Ok(())
    }

    fn import(&mut self, file: &SourceFile, import: &Located<String>) -> Result<(), SpecError> {
        let imported = imported(file, import)?;
        let identity = identity(&imported.path);
        if self.open.contains(&identity) {
            let message = if identity == self::identity(&file.path) {
                "this file imports itself".to_owned()
            } else {
                let name = &import.value;
                format!("importing `{name}` makes a cycle: it already imports this file, directly or through another")
            };
            return Err(file.error(import.span.clone(), message, "take this import out"));
        }
        if self.done.contains(&identity) {
            return Ok(());
        }
        let parsed: SpaceFile = reading::read(&imported)?;
        self.add(&imported, &parsed.space, &parsed.rules)
    }

    /// Returns a builder of the space with all parameters, but only these rules.
    pub(super) fn builder(&self, rules: &[usize]) -> Result<SpaceBuilder, SpecError> {
        let mut builder = Space::builder();
        for definition in &self.parameters {
            builder = match part(&self.files[definition.file], definition)? {
                Part::Parameter(parameter) => builder.parameter(parameter),
                Part::Derived(name, expression) => builder.derive(name, expression),
            };
        }
        for (file, text) in rules.iter().filter_map(|rule| self.rules.get(*rule)) {
            builder = builder.rule(expression(&self.files[*file], text)?);
        }
        Ok(builder)
    }

    pub(super) fn definition(&self, name: &str) -> Option<(&SourceFile, &Definition)> {
        let definition = self.parameters.iter().find(|known| known.name.value == name)?;
        Some((&self.files[definition.file], definition))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|definition| definition.name.value.as_str())
    }

    pub(super) fn expression_at(&self, owner: &Owner) -> Option<(&SourceFile, &Located<String>)> {
        match owner {
            Owner::When(name) => self.definition(name).and_then(|(file, at)| Some((file, at.table.when.as_ref()?))),
            Owner::Derive(name) => self.definition(name).and_then(|(file, at)| Some((file, at.table.derive.as_ref()?))),
            Owner::Rule(place) => self.rules.get(*place).map(|(file, text)| (&self.files[*file], text)),
        }
    }

    /// Makes the error for rules that exclude every config. It points at the first rule after which no config is left, and names
    /// the earlier rules that it conflicts with.
    pub(super) fn nothing_allowed(&self, file: &SourceFile, table: &Located<SpaceTable>, space: &Space) -> SpecError {
        let settings: Vec<_> = space.parameters().iter().map(|p| format!("{} = {}", p.name(), p.summary())).collect();
        let settings = format!("the settings are {}", settings.join("; "));
        let leaves_nothing = |rules: &[usize]| {
            let space = self.builder(rules).map(SpaceBuilder::build);
            space.is_ok_and(|space| space.is_ok_and(|space| space.is_empty()))
        };
        let up_to = |last: usize| (0..=last).collect::<Vec<usize>>();
        let culprit = (0..self.rules.len()).find(|&last| leaves_nothing(&up_to(last)));
        let Some((place, (source, text))) = culprit.and_then(|place| Some((place, self.rules.get(place)?))) else {
            return file.error(table.span.clone(), "no config of the space can be evaluated", settings);
        };
        // Drop each rule without which the space is still empty.
        let mut conflict = up_to(place);
        for other in 0..place {
            let rest: Vec<usize> = conflict.iter().copied().filter(|rule| *rule != other).collect();
            if leaves_nothing(&rest) {
                conflict = rest;
            }
        }
        conflict.pop();
        let others: Vec<String> = conflict.iter().map(|rule| format!("`{}`", self.rules[*rule].1.value)).collect();
        let others =
            if others.is_empty() { String::new() } else { format!(", together with {},", others.join(" and ")) };
        let message = if place + self.implied_rules >= self.rules.len() {
            let follows = if others.is_empty() { "," } else { &others };
            format!("the rule `{}`, which follows from this{follows} excludes every config", text.value)
        } else {
            format!("this rule{others} excludes every config")
        };
        self.files[*source].error(text.span.clone(), message, format!("loosen it; {settings}"))
    }
}

/// Returns a path that is equal for two paths to the same file.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Reads what an import names: a bundled space, or a file.
fn imported(file: &SourceFile, import: &Located<String>) -> Result<SourceFile, SpecError> {
    // `search-spaces/NAME.toml` is a bundled space, unless that file exists relative to the importing file.
    let in_source = import.value.strip_prefix("search-spaces/").and_then(|name| name.strip_suffix(".toml"));
    let is_there = file.path.parent().unwrap_or(Path::new("")).join(&import.value).exists();
    let wanted = in_source.filter(|_| !is_there).unwrap_or(&import.value);
    if let Some((name, text)) = SHIPPED_SPACES.iter().find(|(name, _)| *name == wanted) {
        return Ok(SourceFile { path: PathBuf::from(format!("search-spaces/{name}.toml")), text: (*text).to_owned() });
    }
    if import.value.contains('/') || import.value.ends_with(".toml") {
        return file.read_beside(Path::new(&import.value), &import.span);
    }
    let hint = suggestion(&import.value, SHIPPED_SPACES.iter().map(|(name, _)| *name));
    let message = format!("gputune bundles no search space `{}`", import.value);
    Err(file.error(import.span.clone(), message, format!("{hint} (a file has a path such as \"./space.toml\")")))
}

/// Makes the error for a mistake in the space, at the place in a file where the mistake lies.
pub(super) fn mistake(collected: &Collected, file: &SourceFile, table: &Range<usize>, error: &SpaceError) -> SpecError {
    let named = |name: &str, hint: &str| {
        let (source, definition) = collected.definition(name)?;
        Some(source.error(definition.name.span.clone(), error.to_string(), hint))
    };
    let found = match error {
        SpaceError::BadName(name, _) => named(name, &format!("rename it, for example `{}`", usable(name))),
        SpaceError::DuplicateName(name) => named(name, "rename one of them"),
        SpaceError::Empty(parameter) => named(parameter, "give it at least one setting"),
        SpaceError::TooMany(parameter) => named(parameter, "use a larger `step`, or `powers_of_two`"),
        SpaceError::DuplicateValue(parameter, _) => named(parameter, "take one of them out"),
        SpaceError::UnknownName(owner, name) => {
            collected.expression_at(owner).map(|(source, text)| unknown_name(source, text, name, collected.names()))
        }
        SpaceError::Circular(names) => circle(collected, names),
        SpaceError::Evaluation { owner, settings, source } => evaluation(collected, owner, settings, source),
        SpaceError::NoParameters => None,
    };
    found.unwrap_or_else(|| {
        file.error(table.clone(), error.to_string(), "for example batch_size = { powers_of_two = [8, 64] }")
    })
}

/// Makes the error for an unknown name in an expression.
pub(super) fn unknown_name<'k>(
    source: &SourceFile,
    text: &Located<String>,
    name: &str,
    known: impl Iterator<Item = &'k str>,
) -> SpecError {
    let part = expression(source, text).ok().and_then(|parsed| parsed.find(name));
    let behind = part.as_ref().and_then(|part| text.value.get(part.end..)).unwrap_or_default();
    let span = source.inside(&text.span, &text.value, part.clone());
    if behind.trim_start().starts_with('(') {
        return source.error(span, format!("no function is called `{name}`"), functions());
    }
    let hint = format!("{} (a text stands in quotes, such as '{name}')", suggestion(name, known));
    source.error(span, format!("no parameter is called `{name}`"), hint)
}

/// Turns a name that expressions cannot use into a usable name.
fn usable(name: &str) -> String {
    let letters: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match letters.chars().next() {
        Some(first) if letters == name && first.is_ascii_alphabetic() => format!("{name}_value"),
        Some(first) if first.is_ascii_alphabetic() => letters,
        Some(_) if letters.chars().any(|c| c != '_') => format!("value_{letters}"),
        _ => "batch_size".to_owned(),
    }
}

fn circle(collected: &Collected, names: &[String]) -> Option<SpecError> {
    let first = names.first()?;
    let next = names.get(1).unwrap_or(first);
    let derived = collected.expression_at(&Owner::Derive(first.clone()));
    let (source, text) = derived.or_else(|| collected.expression_at(&Owner::When(first.clone())))?;
    let part = expression(source, text).ok().and_then(|parsed| parsed.find(next));
    let through: Vec<String> = names.iter().skip(1).map(|name| format!("`{name}`")).collect();
    let message = match through.as_slice() {
        [] => format!("`{first}` depends on itself"),
        _ => format!("`{first}` depends on itself, by way of {}", through.join(" and ")),
    };
    let span = source.inside(&text.span, &text.value, part);
    Some(source.error(span, message, "write it in terms of parameters that do not depend on it"))
}

fn evaluation(collected: &Collected, owner: &Owner, settings: &str, error: &ExpressionError) -> Option<SpecError> {
    let (source, text) = collected.expression_at(owner)?;
    let place = if settings.is_empty() { String::new() } else { format!(" for {settings}") };
    let owner = match owner {
        Owner::Rule(_) => "this rule".to_owned(),
        other => other.to_string(),
    };
    let hint = HINTS.iter().find(|(part, _)| error.message.contains(part));
    let hint = hint.map_or_else(functions, |(_, hint)| (*hint).to_owned());
    let span = source.inside(&text.span, &text.value, error.range.clone());
    Some(source.error(span, format!("{owner} cannot be evaluated{place}: {}", error.message), hint))
}
