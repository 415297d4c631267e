//! From `[step]` to what is run and how it is read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use regex::bytes::RegexBuilder;

use super::error::{SourceFile, SpecError, suggestion};
use super::file::{FileTable, Located, StepTable, ThroughputTable};
use super::space::expression;
use crate::probe::{BUILTINS, CommandStep, Rate, RateUnit, StepTemplate, Template};
use crate::space::{Expression, Space, Value};
use crate::telemetry::Device;

/// What is run, and how its throughput is read.
#[derive(Debug)]
pub struct StepSpec {
    template: StepTemplate,
    rate: Rate,
    samples_per_step: Option<Expression>,
}

impl StepSpec {
    /// The command, its environment and its files, before settings are filled in.
    pub fn template(&self) -> &StepTemplate {
        &self.template
    }

    /// The step as a command prober takes it.
    pub fn into_command(self, gputune: PathBuf, supervisor: PathBuf, device: &Device) -> CommandStep {
        CommandStep {
            template: self.template,
            rate: self.rate,
            samples_per_step: self.samples_per_step,
            gputune,
            supervisor,
            is_gpu: device.is_gpu,
        }
    }

    /// What trials depend on.
    pub(super) fn fingerprint(&self) -> serde_json::Value {
        let StepTemplate { command, env, cwd, files } = &self.template;
        let texts = |pairs: Vec<(String, &Template)>| -> serde_json::Map<String, serde_json::Value> {
            pairs.into_iter().map(|(name, template)| (name, template.text().into())).collect()
        };
        let throughput = match &self.rate {
            Rate::Events => "events".to_owned(),
            Rate::Pattern { pattern, unit } => format!("{pattern} {unit:?}"),
        };
        serde_json::json!({
            "arguments": command.iter().map(Template::text).collect::<Vec<_>>(),
            "env": texts(env.iter().map(|(name, value)| (name.clone(), value)).collect()),
            "cwd": cwd.display().to_string(),
            "files": texts(files.iter().map(|(path, text)| (path.display().to_string(), text)).collect()),
            "throughput": throughput,
            "samples_per_step": self.samples_per_step.as_ref().map(Expression::text),
        })
    }

    /// A warning for each parameter that nothing hands to the step.
    pub(super) fn unused(&self, space: &Space) -> Vec<String> {
        let mut used: BTreeSet<&str> =
            self.template.templates().flat_map(Template::names).map(|(name, _)| name).collect();
        // A parameter that only others are derived from reaches the step through them.
        let expressions = space.derived().iter().filter(|derived| used.contains(derived.name()));
        let through: Vec<&String> = expressions.flat_map(|derived| derived.expression().names()).collect();
        used.extend(through.into_iter().map(String::as_str));
        space
            .parameters()
            .iter()
            .map(crate::space::Parameter::name)
            .filter(|name| !used.contains(name))
            .map(|name| {
                format!(
                    "nothing in [step] uses `{name}`: the step only sees it in the environment variable GPUTUNE_CONFIG"
                )
            })
            .collect()
    }
}

/// The step of a spec's table.
pub(super) fn build(source: &SourceFile, table: &StepTable, space: &Space) -> Result<StepSpec, SpecError> {
    if table.command.value.first().is_none_or(|program| program.value.trim().is_empty()) {
        return Err(SpecError {
            hint: Some(
                "for example command = [\"python\", \"train.py\", \"--batch-size\", \"{batch_size}\"]".to_owned(),
            ),
            ..source.error(table.command.span.clone(), "the command is empty")
        });
    }
    let template = |text: &Located<String>| template(source, text, space);
    let folder = folder_of(&source.path);
    let cwd = match &table.cwd {
        Some(cwd) if folder.join(&cwd.value).is_dir() => folder.join(&cwd.value),
        Some(cwd) => {
            return Err(SpecError {
                hint: Some("it is relative to this file".to_owned()),
                ..source.error(cwd.span.clone(), format!("there is no folder {}", folder.join(&cwd.value).display()))
            });
        }
        None => folder.clone(),
    };
    let mut env = Vec::new();
    for (name, value) in &table.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(
                source.error(value.span.clone(), format!("`{name}` cannot be the name of an environment variable"))
            );
        }
        env.push((name.clone(), template(value)?));
    }
    Ok(StepSpec {
        template: StepTemplate {
            command: table.command.value.iter().map(template).collect::<Result<_, _>>()?,
            env,
            cwd: cwd.canonicalize().unwrap_or(cwd),
            files: table
                .files
                .iter()
                .map(|file| rendered_file(source, &folder, file, space))
                .collect::<Result<_, _>>()?,
        },
        rate: table.throughput.as_ref().map_or(Ok(Rate::Events), |throughput| rate(source, throughput, table))?,
        samples_per_step: table.samples_per_step.as_ref().map(|text| samples(source, text, space)).transpose()?,
    })
}

/// The folder that a spec stands in; absolute, so that it means the same in the child.
fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

fn template(source: &SourceFile, text: &Located<String>, space: &Space) -> Result<Template, SpecError> {
    if text.value.contains('\0') {
        return Err(source.error(text.span.clone(), "a zero byte cannot be in an argument or an environment variable"));
    }
    let template = Template::parse(&text.value);
    check_names(source, text, &template, space)?;
    Ok(template)
}

/// Every name must be there, and one with a `?` a boolean.
fn check_names(
    source: &SourceFile,
    text: &Located<String>,
    template: &Template,
    space: &Space,
) -> Result<(), SpecError> {
    let parameters = || space.parameters().iter().map(crate::space::Parameter::name);
    let derived = || space.derived().iter().map(crate::space::Derived::name);
    let builtins = || BUILTINS.iter().map(|(name, _)| *name);
    for (name, must_be_boolean) in template.names() {
        let part = text.value.find(&format!("{{{name}")).map(|start| start + 1..start + 1 + name.len());
        let span = source.inside(&text.span, &text.value, part);
        if parameters().chain(derived()).chain(builtins()).all(|known| known != name) {
            return Err(SpecError {
                hint: Some(format!(
                    "{}; write {{{{{name}}}}} for a literal {{{name}}}",
                    suggestion(name, parameters().chain(derived()).chain(builtins()))
                )),
                ..source.error(span, format!("no parameter is called `{name}`"))
            });
        }
        let parameter = space.parameter_index(name).map(|at| &space.parameters()[at]);
        let is_boolean = parameter.is_none_or(|parameter| matches!(parameter.value(0), Value::Bool(_)));
        if must_be_boolean && !is_boolean {
            return Err(source.error(span, format!("`{name}` is no boolean, and `{{{name}?...}}` needs one")));
        }
    }
    Ok(())
}

fn rendered_file(
    source: &SourceFile,
    folder: &Path,
    file: &FileTable,
    space: &Space,
) -> Result<(PathBuf, Template), SpecError> {
    let target = &file.path.value;
    let stays_below = target.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if target.as_os_str().is_empty() || !stays_below {
        return Err(SpecError {
            hint: Some("give a relative path; the command finds the file as {probe_dir}/...".to_owned()),
            ..source.error(file.path.span.clone(), "a rendered file stays in the folder of its probe")
        });
    }
    let content = SourceFile::read(&folder.join(&file.template.value))
        .map_err(|error| SpecError { hint: error.hint, ..source.error(file.template.span.clone(), error.message) })?;
    let whole = Located { value: content.text.clone(), span: 0..content.text.len().min(1) };
    let template = Template::parse(&content.text);
    check_names(&content, &whole, &template, space).map_err(|error| {
        let name = template.names().map(|(name, _)| name).find(|name| error.message.contains(&format!("`{name}`")));
        let at = name.and_then(|name| Some(content.text.find(&format!("{{{name}"))? + 1));
        let span = at.zip(name).map(|(at, name)| at..at + name.len());
        SpecError { span: span.or(error.span.clone()), ..error }
    })?;
    Ok((target.clone(), template))
}

fn rate(source: &SourceFile, throughput: &ThroughputTable, table: &StepTable) -> Result<Rate, SpecError> {
    let ThroughputTable { pattern, unit } = throughput;
    let compiled = RegexBuilder::new(&pattern.value).size_limit(1 << 20).build().map_err(|error| {
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        SpecError {
            hint: Some("in single quotes TOML leaves backslashes alone: '([0-9.]+) samples/s'".to_owned()),
            ..source.error(pattern.span.clone(), format!("this is no regular expression: {reason}"))
        }
    })?;
    if compiled.captures_len() > 2 && compiled.static_captures_len() != Some(compiled.captures_len()) {
        // Alternatives with a group each are fine: the first that takes part counts.
    } else if compiled.captures_len() > 2 {
        return Err(SpecError {
            hint: Some("write (?:...) for the groups that are not the number".to_owned()),
            ..source.error(pattern.span.clone(), "the pattern has several groups, so which is the number?")
        });
    }
    let parsed = RateUnit::parse(&unit.value).map_err(|error| source.error(unit.span.clone(), error.to_string()))?;
    if parsed.counts_steps() && table.samples_per_step.is_none() {
        return Err(SpecError {
            hint: Some("add `samples_per_step` to [step], for example \"batch_size\"".to_owned()),
            ..source.error(unit.span.clone(), "steps of different batch sizes cannot be compared")
        });
    }
    Ok(Rate::Pattern { pattern: compiled, unit: parsed })
}

fn samples(source: &SourceFile, text: &Located<Value>, space: &Space) -> Result<Expression, SpecError> {
    let written = Located { value: text.value.to_string(), span: text.span.clone() };
    let parsed = expression(source, &written)?;
    let known = |name: &String| {
        space.parameter_index(name).is_some() || space.derived().iter().any(|derived| derived.name() == name)
    };
    if let Some(name) = parsed.names().iter().find(|name| !known(name)) {
        let names = space.parameters().iter().map(crate::space::Parameter::name);
        return Err(SpecError {
            hint: Some(suggestion(name, names)),
            ..source.error(
                source.inside(&text.span, &written.value, parsed.find(name)),
                format!("no parameter is called `{name}`"),
            )
        });
    }
    let first = space.first().map(|config| space.settings(&config)).unwrap_or_default();
    let count = parsed.value(|name| first.get(name)).ok().and_then(|count| count.as_f64());
    if count.is_none_or(|count| count <= 0.0) && parsed.names().iter().all(|name| first.get(name).is_some()) {
        return Err(source.error(text.span.clone(), "samples per step must be a positive number"));
    }
    Ok(parsed)
}
