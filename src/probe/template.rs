//! Fills settings into strings: arguments, environment values and rendered files.
//!
//! `{name}` stands for a setting, `{{name}}` for the literal `{name}`. `{name?text}` becomes `text` if the setting is true, and
//! nothing if it is false. Any other brace is a brace, so JSON needs no escaping.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize;

use crate::model::{Derived, Parameter, Settings, Space, Value};
use crate::probe::adapter::Apply;

/// Names that are not settings but can be used in a template.
pub const BUILTINS: &[(&str, &str)] =
    &[(PROGRAM, "the path of this program"), ("probe_dir", "a folder of this probe's own, where rendered files are")];

const PROGRAM: &str = "gputune";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Name(String),
    If { name: String, text: String },
}

/// A string with settings in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

impl Template {
    /// Reads a template. Every string is a valid template.
    pub fn parse(text: &str) -> Self {
        static PLACES: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|\{([A-Za-z_][A-Za-z0-9_]*)(?:\?([^}]*))?\}").ok()
        });
        let mut parts: Vec<Part> = Vec::new();
        let mut end = 0;
        for place in PLACES.iter().flat_map(|places| places.captures_iter(text)) {
            let Some(whole) = place.get(0) else { continue };
            push_literal(&mut parts, &text[end..whole.start()]);
            end = whole.end();
            let group = |at: usize| place.get(at).map(|group| group.as_str().to_owned());
            match (group(1), group(2), group(3)) {
                (Some(name), ..) => push_literal(&mut parts, &format!("{{{name}}}")),
                (_, Some(name), Some(text)) => parts.push(Part::If { name, text }),
                (_, Some(name), None) => parts.push(Part::Name(name)),
                _ => {}
            }
        }
        push_literal(&mut parts, &text[end..]);
        Self { text: text.to_owned(), parts }
    }

    /// Makes a template without settings: every brace is a brace.
    pub fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), parts: vec![Part::Literal(text.to_owned())] }
    }

    /// Returns the original string.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names in the template. The second value is true if the name must be a boolean.
    pub fn names(&self) -> impl Iterator<Item = (&str, bool)> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Name(name) => Some((name.as_str(), false)),
            Part::If { name, .. } => Some((name.as_str(), true)),
        })
    }

    /// Returns the string with settings filled in; `None` if one of the settings is inactive.
    fn render(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> Option<String> {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Literal(text) => Some(text.clone()),
                Part::Name(name) => lookup(name).map(|value| value.to_string()),
                Part::If { name, text } => {
                    lookup(name).map(|value| if value == Value::Bool(true) { text.clone() } else { String::new() })
                }
            })
            .collect()
    }

    /// Returns true if the template is an option with its setting in one word: `--workers={workers}`, `-w{workers}`,
    /// `workers={workers}`.
    pub fn is_assignment(&self) -> bool {
        let Some(Part::Literal(first)) = self.parts.first() else { return false };
        let key = first.split_once('=').map_or("", |(key, _)| key);
        let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.+/@".contains(c);
        let is_one_word = !self.text.contains(char::is_whitespace);
        is_one_word && (first.starts_with('-') || (!key.is_empty() && key.chars().all(is_key)))
    }

    /// Returns true if the template is only a switch, which leaves no argument behind when it is off.
    pub fn is_switch(&self) -> bool {
        matches!(self.parts.as_slice(), [Part::If { .. }])
    }

    /// Returns true if the template is only a setting, such as `{workers}`.
    fn is_bare(&self) -> bool {
        matches!(self.parts.as_slice(), [Part::Name(_)])
    }

    /// Returns true if the template has a setting, or the folder of the files that are rendered from settings.
    pub fn has_settings(&self) -> bool {
        self.names().any(|(name, _)| name != PROGRAM)
    }

    /// Returns true if the template is an option without a setting, such as `--batch-size`, so that the next word may
    /// be its value.
    pub fn is_option(&self) -> bool {
        self.text.starts_with('-') && self.names().next().is_none()
    }
}

/// Returns text in which every `{name}` is written as `{{name}}`.
pub fn escaped(text: &str) -> String {
    static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{([A-Za-z_][A-Za-z0-9_]*)\}").ok());
    NAMES.as_ref().map_or_else(|| text.to_owned(), |names| names.replace_all(text, "{{$1}}").into_owned())
}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Literal(literal)) => literal.push_str(text),
        _ => parts.push(Part::Literal(text.to_owned())),
    }
}

fn is_builtin(name: &str) -> bool {
    BUILTINS.iter().any(|(builtin, _)| *builtin == name)
}

/// The step to run for a config, before settings are filled in.
#[derive(Debug, Clone)]
pub struct StepTemplate {
    /// Program and arguments.
    pub command: Vec<Template>,
    /// Environment variables to set in addition to the inherited ones.
    pub env: Vec<(String, Template)>,
    /// The working folder of the command.
    pub cwd: PathBuf,
    /// Files to render into the probe's folder: path below the folder, and content.
    pub files: Vec<(PathBuf, Template)>,
    /// The settings that reach the script without its cooperation.
    pub apply: Apply,
}

/// A word of a command with settings filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The word.
    pub text: String,
    /// The place of its template in the command; `None` for an argument that `apply` appends.
    pub template: Option<usize>,
}

/// The step to run for one config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rendered {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables to set in addition to the inherited ones.
    pub env: Vec<(String, String)>,
    /// The working folder of the command.
    pub cwd: PathBuf,
    /// Files to write: path and content.
    pub files: Vec<(PathBuf, String)>,
}

impl StepTemplate {
    /// Returns all templates, for checks.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let env = self.env.iter().map(|(_, template)| template);
        let files = self.files.iter().map(|(_, template)| template);
        self.command.iter().chain(env).chain(files)
    }

    /// Returns true if any setting reaches the command by its arguments, environment or files, or is applied.
    pub fn uses_settings(&self) -> bool {
        let is_used = self.templates().flat_map(Template::names).any(|(name, _)| !is_builtin(name));
        is_used || !self.apply.is_nothing()
    }

    /// Returns true if a probe needs its own folder.
    pub fn uses_probe_dir(&self) -> bool {
        !self.files.is_empty() || self.templates().flat_map(Template::names).any(|(name, _)| name == "probe_dir")
    }

    /// Returns a part of the job that needs a setting which `set` lacks, unless such parts can be left out. A file made
    /// of settings cannot be left out, nor an argument that is not an option. Options can: `--workers {workers}`,
    /// `--workers={workers}`, `workers={workers}`, `{amp?--amp}`.
    pub fn needs_settings(&self, set: &Settings) -> Option<String> {
        let is_missing = |name: &str| !is_builtin(name) && set.get(name).is_none();
        let needs = |template: &Template| template.names().any(|(name, _)| is_missing(name));
        if let Some((path, _)) = self.files.iter().find(|(_, text)| needs(text)) {
            return Some(format!("the file {} is made of settings", path.display()));
        }
        let with_option = |at: usize| at > 0 && self.command[at - 1].is_option();
        let is_option = |at: usize, word: &Template| {
            word.is_switch() || word.is_assignment() || (word.is_bare() && with_option(at))
        };
        let (_, word) = self.command.iter().enumerate().find(|(at, word)| needs(word) && !is_option(*at, word))?;
        Some(format!("the argument `{}` cannot be left out", word.text))
    }

    /// Returns program and arguments with settings filled in, as in [`render`](Self::render), each with its origin.
    pub fn words(&self, settings: &Settings, gputune: &Path, probe_dir: &Path) -> Vec<Word> {
        let lookup = lookup(settings, gputune, probe_dir);
        let mut words: Vec<Word> = Vec::with_capacity(self.command.len());
        let mut before: Option<&Template> = None;
        for (at, template) in self.command.iter().enumerate() {
            match template.render(&lookup) {
                Some(text) if text.is_empty() && template.is_switch() => {}
                Some(text) => words.push(Word { text, template: Some(at) }),
                None if template.is_bare() && before.is_some_and(Template::is_option) => drop(words.pop()),
                None => {}
            }
            before = Some(template);
        }
        let arguments = self.apply.arguments(settings, |parameter| self.command_has(parameter));
        words.extend(arguments.into_iter().map(|text| Word { text, template: None }));
        words
    }

    /// Returns true if the command contains a parameter's setting.
    pub fn command_has(&self, parameter: &str) -> bool {
        self.command.iter().flat_map(Template::names).any(|(name, _)| name == parameter)
    }

    /// Returns the parameters that reach the step only in the variable `GPUTUNE_CONFIG`, and in no other way.
    pub fn unheard<'s>(&self, space: &'s Space) -> Vec<&'s str> {
        let mut used: BTreeSet<&str> = self.templates().flat_map(Template::names).map(|(name, _)| name).collect();
        used.extend(self.apply.applied.iter().map(|applied| applied.parameter.as_str()));
        // A parameter also reaches the step through derived values. Each pass follows one more level of derived values.
        for _ in space.derived() {
            let expressions = space.derived().iter().filter(|derived| used.contains(derived.name()));
            let through: Vec<&String> =
                expressions.map(Derived::expression).flat_map(|expression| expression.names()).collect();
            used.extend(through.into_iter().map(String::as_str));
        }
        space.parameters().iter().map(Parameter::name).filter(|name| !used.contains(name)).collect()
    }

    /// Fills in settings.
    ///
    /// An argument that needs an inactive setting is left out. An option directly in front of it is also left out if it has no
    /// setting of its own (`--prefetch {prefetch}`). A switch that is off is left out, and so is an environment variable or a file
    /// that needs an inactive setting.
    pub fn render(&self, settings: &Settings, gputune: &Path, probe_dir: &Path) -> Rendered {
        let lookup = lookup(settings, gputune, probe_dir);
        let command = self.words(settings, gputune, probe_dir).into_iter().map(|word| word.text).collect();
        let env = self.env.iter().filter_map(|(name, value)| Some((name.clone(), value.render(&lookup)?)));
        let env = env.chain(self.apply.environment(settings));
        let files = self.files.iter().filter_map(|(path, text)| Some((probe_dir.join(path), text.render(&lookup)?)));
        Rendered { command, env: env.collect(), cwd: self.cwd.clone(), files: files.collect() }
    }
}

/// Returns the values of the names in templates.
fn lookup<'s>(settings: &'s Settings, gputune: &'s Path, probe_dir: &'s Path) -> impl Fn(&str) -> Option<Value> + 's {
    move |name| match name {
        PROGRAM => Some(Value::Text(gputune.display().to_string())),
        "probe_dir" => Some(Value::Text(probe_dir.display().to_string())),
        _ => settings.get(name).filter(|value| !value.is_as_it_is()).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(arguments: &[&str]) -> StepTemplate {
        let command = arguments.iter().map(|text| Template::parse(text)).collect();
        StepTemplate { command, env: Vec::new(), cwd: PathBuf::new(), files: Vec::new(), apply: Apply::default() }
    }

    fn render(arguments: &[&str], settings: &[(&str, Value)]) -> Vec<String> {
        let settings: Settings = settings.iter().map(|(name, value)| (*name, value.clone())).collect();
        step(arguments).render(&settings, Path::new("/bin/gputune"), Path::new("/out/probe")).command
    }

    #[test]
    fn names_are_filled_in_and_other_braces_stay() {
        let arguments =
            ["{gputune}", "-b={b}", "{\"a\": {b}}", "{{b}}", "{ b }", "{", "}", "{b", "${HOME}", "{{\"x\": 1}}"];
        let rendered = render(&arguments, &[("b", Value::from(8)), ("HOME", Value::from("me"))]);
        assert_eq!(
            rendered,
            ["/bin/gputune", "-b=8", "{\"a\": 8}", "{b}", "{ b }", "{", "}", "{b", "$me", "{{\"x\": 1}}"]
        );
    }

    #[test]
    fn switches_come_and_go() {
        let arguments = ["run", "{amp?--amp}", "--x={amp?on}"];
        assert_eq!(render(&arguments, &[("amp", Value::from(true))]), ["run", "--amp", "--x=on"]);
        assert_eq!(render(&arguments, &[("amp", Value::from(false))]), ["run", "--x="]);
    }

    #[test]
    fn an_inactive_setting_takes_its_option_along() {
        let arguments = ["run", "--batch", "{batch}", "--prefetch", "{prefetch}", "--p={prefetch}", "end"];
        assert_eq!(render(&arguments, &[("batch", Value::from(8))]), ["run", "--batch", "8", "end"]);
        assert_eq!(render(&["a", "{x}"], &[]), ["a"], "a plain argument stays");
    }

    #[test]
    fn a_job_is_run_as_it_is_where_its_settings_are_options() {
        let needs = |arguments: &[&str]| {
            let env = vec![("X".to_owned(), Template::parse("{x}"))];
            StepTemplate { env, ..step(arguments) }.needs_settings(&Settings::default())
        };
        for options in [
            &["{gputune}", "demo-step", "--x", "{x}"][..],
            &["train", "--x={x}", "-b{b}", "optim.lr={lr}", "+a/b={c}", "{amp?--amp}", "--{name}"],
            &["train", "{probe_dir}/out"],
        ] {
            assert_eq!(needs(options), None, "{options:?}");
        }
        for words in [
            &["train", "{x}"][..],
            &["sh", "-c", "train --x {x}"],
            &["sh", "-c", "X={x} train"],
            &["run", "forever:{x}:5"],
            &["run", "--fast", "a", "{x}"],
        ] {
            assert!(needs(words).is_some(), "{words:?}");
        }
    }

    #[test]
    fn names_tell_what_must_be_a_boolean() {
        let template = Template::parse("{a} {b?x} {{c}}");
        assert_eq!(template.names().collect::<Vec<_>>(), [("a", false), ("b", true)]);
    }
}
