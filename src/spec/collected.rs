//! Collects the parameters and rules of a spec and of the files that it imports.

use std::path::{Path, PathBuf};

use super::error::{SourceFile, SpecError, suggestion};
use super::file::{RuleTable, SpaceFile, SpaceTable};
use super::located::Located;
use super::parameter::{Definition, Part, expression, part};
use super::reading;
use super::shipped::SHIPPED_SPACES;
use crate::model::{Owner, Space, SpaceBuilder};

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
                format!("`{}` imports this file, so each imports the other", import.value)
            };
            return Err(file.error(import.span.clone(), message, "take this import out"));
        }
        if self.done.contains(&identity) {
            return Ok(());
        }
        let parsed: SpaceFile = reading::read(&imported)?;
        self.add(&imported, &parsed.space, &parsed.rules)
    }

    /// The parts of the space, with some of the rules.
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
        let settings: Vec<String> =
            space.parameters().iter().map(|p| format!("{} = {}", p.name(), p.summary())).collect();
        let hint = format!("loosen it; the settings are {}", settings.join("; "));
        let leaves_nothing = |rules: &[usize]| {
            let space = self.builder(rules).map(SpaceBuilder::build);
            space.is_ok_and(|space| space.is_ok_and(|space| space.is_empty()))
        };
        let up_to = |last: usize| (0..=last).collect::<Vec<usize>>();
        let culprit = (0..self.rules.len()).find(|&last| leaves_nothing(&up_to(last)));
        let Some((place, (source, text))) = culprit.and_then(|place| Some((place, self.rules.get(place)?))) else {
            return file.error(table.span.clone(), "no config of the space can be evaluated", hint);
        };
        // A rule that can be removed while still nothing is left is no part of the conflict.
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
        self.files[*source].error(text.span.clone(), message, hint)
    }
}

/// Returns a path that is equal for two paths to the same file.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Reads what an import names: a shipped space, or a file.
fn imported(file: &SourceFile, import: &Located<String>) -> Result<SourceFile, SpecError> {
    // If no such file is beside the spec, the names that the shared spaces have in the source are accepted, too.
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
