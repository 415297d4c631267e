//! Turns `[step]` into the command to run and the way to read its throughput.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::collected::unknown_name;
use super::error::{SourceFile, SpecError};
use super::file::StepTable;
use super::located::Located;
use super::machine::Span;
use super::parameter::expression;
use super::template::{rate, rendered_files, replaced_files, template};
use crate::machine::{Device, DeviceChoice, VISIBLE_GPUS};
use crate::model::{Derived, Expression, Parameter, Role, Settings, Space, Value, Walk};
use crate::probe::{
    CommandStep, Rate, Start, StepTemplate, Template, Writes, WritesWish, adapter::Apply, as_it_is_needs,
};

/// The command to run, and the source of its throughput.
#[derive(Debug)]
pub struct StepSpec {
    template: StepTemplate,
    rate: Rate,
    samples_per_step: Option<Expression>,
    /// True if no setting changes the number of samples in a step, so rates of steps can be compared as well.
    may_count_steps: bool,
    ranks: Option<Expression>,
    device: DeviceChoice,
    writes: WritesWish,
    start: Start,
    spans: Option<Span>,
}

impl StepSpec {
    /// Returns the device that trains.
    pub fn device(&self) -> DeviceChoice {
        self.device
    }

    /// Returns the command, its environment and its files, before settings are filled in.
    pub fn template(&self) -> &StepTemplate {
        &self.template
    }

    /// Returns what should happen to the probes' writes.
    pub fn writes(&self) -> WritesWish {
        self.writes
    }

    /// Converts the step for a command prober.
    pub fn into_command(self, gputune: PathBuf, supervisor: PathBuf, device: &Device) -> CommandStep {
        let gputune_there = gputune.clone();
        CommandStep {
            template: self.template,
            rate: self.rate,
            samples_per_step: self.samples_per_step,
            may_count_steps: self.may_count_steps,
            ranks: self.ranks,
            gputune,
            supervisor,
            is_gpu: device.is_gpu,
            writes: self.writes,
            start: self.start,
            slot: None,
            relays: self.spans.map(|span| span.relays(gputune_there, device.clone())).unwrap_or_default(),
        }
    }

    /// Returns why the unmodified job cannot run with only the settings in `set`; `None` if it can.
    pub fn as_it_is_needs(&self, set: &Settings) -> Option<String> {
        as_it_is_needs(&self.template, &self.rate, self.samples_per_step.as_ref(), set)
    }

    /// Returns what trials depend on.
    pub(super) fn fingerprint(&self) -> serde_json::Value {
        let StepTemplate { command, env, cwd, files, apply } = &self.template;
        // The variable that hides the GPUs is left out, because the device's name already says which device trains.
        let env = env.iter().filter(|(name, _)| !(self.device == DeviceChoice::Cpu && name == VISIBLE_GPUS));
        let texts = |pairs: Vec<(String, &Template)>| -> serde_json::Map<String, serde_json::Value> {
            pairs.into_iter().map(|(name, template)| (name, template.text().into())).collect()
        };
        let throughput = match &self.rate {
            Rate::Events => "events".to_owned(),
            Rate::Pattern { pattern, unit } => format!("{pattern} {unit:?}"),
        };
        let mut fingerprint = serde_json::json!({
            "arguments": command.iter().map(Template::text).collect::<Vec<_>>(),
            "env": texts(env.map(|(name, value)| (name.clone(), value)).collect()),
            "cwd": cwd.display().to_string(),
            "files": texts(files.iter().map(|(path, text)| (path.display().to_string(), text)).collect()),
            "throughput": throughput,
            "samples_per_step": self.samples_per_step.as_ref().map(Expression::text),
        });
        if !apply.is_nothing() {
            let applied = apply.applied.iter().map(|applied| (applied.parameter.clone(), applied.name.clone().into()));
            fingerprint["adapter"] = apply.adapter.map(|adapter| adapter.name).into();
            // Losses of searches with different seeds cannot be compared.
            fingerprint["seed"] = apply.adapter.map(|_| apply.seed).into();
            fingerprint["apply"] = applied.collect::<serde_json::Map<_, _>>().into();
            let arguments = apply.arguments_of_parameters();
            if !arguments.is_empty() {
                fingerprint["options"] = arguments.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
            }
        }
        if let Some(ranks) = &self.ranks {
            fingerprint["ranks"] = ranks.text().into();
        }
        fingerprint
    }

    /// Returns a warning for each parameter that nothing in `[step]` uses.
    pub(super) fn unused(&self, space: &Space) -> Vec<String> {
        let apply = &self.template.apply;
        let unheard = self.template.unheard(space);
        if apply.adapter.is_none() && unheard.len() == space.parameters().len() {
            // If nothing uses any setting, the step reads GPUTUNE_CONFIG on purpose.
            return Vec::new();
        }
        let otherwise = if apply.is_nothing() { "" } else { ", and it has no `apply`" };
        let seen = "the step only sees it in the environment variable GPUTUNE_CONFIG";
        let warning = |name: &str| format!("nothing in [step] uses `{name}`{otherwise}: {seen}");
        unheard.into_iter().map(warning).collect()
    }
}

/// Builds the step of a spec. `spans` spreads its processes over several nodes.
pub(super) fn build(
    source: &SourceFile,
    table: &StepTable,
    space: &Space,
    apply: Apply,
    spans: Option<Span>,
) -> Result<StepSpec, SpecError> {
    let folder = folder_of(&source.path);
    let cwd = working_folder(source, table, &folder)?;
    let command = table.command.value.iter().map(|text| template(source, text, space));
    let command: Vec<Template> = command.collect::<Result<_, _>>()?;
    check_program(source, &table.command, &cwd)?;
    let env = table.env.0.iter().map(|(name, value)| variable(source, name, value, space));
    let mut env: Vec<(String, Template)> = env.collect::<Result<_, _>>()?;
    let device = table.device.as_ref().map(|device| device.value).unwrap_or_default();
    if device == DeviceChoice::Cpu {
        check_hidden(source, table, &apply)?;
        env.push((VISIBLE_GPUS.to_owned(), Template::parse("")));
    }
    env.extend(replaced_files(source, &table.files, &cwd)?);
    let throughput = table.throughput.as_ref();
    let files = rendered_files(source, &table.files, space)?;
    Ok(StepSpec {
        template: StepTemplate { command, env, cwd: cwd.canonicalize().unwrap_or(cwd), files, apply },
        rate: throughput.map_or(Ok(Rate::Events), |throughput| rate(source, throughput, table))?,
        samples_per_step: table.samples_per_step.as_ref().map(|text| samples(source, text, space)).transpose()?,
        may_count_steps: space.parameters().iter().all(leaves_samples),
        ranks: table.ranks.as_ref().map(|text| ranks(source, text, space)).transpose()?,
        device,
        writes: WritesWish { spans_nodes: spans.is_some(), ..writes(source, table)? },
        start: start(source, table)?,
        spans,
    })
}

/// Returns true if a parameter surely has no effect on the samples of a step.
fn leaves_samples(parameter: &Parameter) -> bool {
    use Role::{Power, Precision, Prefetch, Threads, Workers};
    matches!(parameter.role(), Some(Workers | Prefetch | Threads | Precision | Power))
}

fn start(source: &SourceFile, table: &StepTable) -> Result<Start, SpecError> {
    let Some(start) = &table.start else { return Ok(Start::default()) };
    let name = match start.value {
        Start::Warm => "warm",
        Start::Live => "live",
        Start::Fresh | Start::Auto => return Ok(start.value),
    };
    if table.adapter.is_none() {
        let message = format!("`start = \"{name}\"` needs an adapter: its hook says what a probe has imported");
        return Err(source.error(start.span.clone(), message, "write adapter = \"torch\", or leave `start` out"));
    }
    Ok(start.value)
}

/// Reads what should happen to a probe's writes.
fn writes(source: &SourceFile, table: &StepTable) -> Result<WritesWish, SpecError> {
    let (writes, size) = (table.writes.as_ref(), table.scratch_size.as_ref());
    match (writes.map(|writes| writes.value), size) {
        (Some(Writes::Guard), _) if table.adapter.is_none() => {
            let span = writes.map_or(0..0, |writes| writes.span.clone());
            let message = "`writes = \"guard\"` needs an adapter: the guards are in its hook";
            Err(source.error(span, message, "write adapter = \"torch\", or leave `writes` out"))
        }
        (Some(Writes::Allow), Some(size)) => {
            let message = "`scratch_size` says nothing where `writes = \"allow\"`: nothing is scratch";
            let hint = "write a share of the free disk such as 0.5, or a size such as \"20GiB\"";
            Err(source.error(size.span.clone(), message, hint))
        }
        (writes, size) => Ok(WritesWish { writes, scratch_size: size.map(|it| it.value.0), ..WritesWish::default() }),
    }
}

/// Returns the absolute folder of a spec. An absolute path has the same meaning in the child process.
fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

fn working_folder(source: &SourceFile, table: &StepTable, folder: &Path) -> Result<PathBuf, SpecError> {
    let Some(cwd) = &table.cwd else { return Ok(folder.to_owned()) };
    let wanted = folder.join(&cwd.value);
    if wanted.is_dir() {
        return Ok(wanted);
    }
    let message = format!("there is no folder `{}`", cwd.value.display());
    Err(source.error(cwd.span.clone(), message, "the path is relative to the folder of this file"))
}

/// Checks that the command names a program, and is not a line for a shell.
fn check_program(source: &SourceFile, command: &Located<Vec<Located<String>>>, cwd: &Path) -> Result<(), SpecError> {
    let hint = "write command = [\"python\", \"train.py\", \"--batch-size\", \"{batch_size}\"]";
    match command.value.as_slice() {
        [] => Err(source.error(command.span.clone(), "the command is empty", hint)),
        [program, ..] if program.value.trim().is_empty() => {
            Err(source.error(program.span.clone(), "the command has no program", hint))
        }
        [line] if line.value.contains(char::is_whitespace) && !cwd.join(&line.value).exists() => {
            Err(source.error(line.span.clone(), "no program is called like this whole line", hint))
        }
        _ => Ok(()),
    }
}

/// Checks that nothing else chooses the visible GPUs, because `device = "cpu"` hides them.
fn check_hidden(source: &SourceFile, table: &StepTable, apply: &Apply) -> Result<(), SpecError> {
    let written = table.env.0.iter().find(|(name, _)| name.value == VISIBLE_GPUS).map(|(name, _)| name.span.clone());
    let applied = apply.applied.iter().find(|applied| applied.variables().contains(&VISIBLE_GPUS));
    let (span, hint) = match (written, applied, &table.device) {
        (Some(span), _, _) => (span, format!("take {VISIBLE_GPUS} out, or `device`")),
        (None, Some(applied), Some(device)) => {
            (device.span.clone(), format!("take `device` out, or the `apply` of `{}`", applied.parameter))
        }
        _ => return Ok(()),
    };
    let message = format!("`device = \"cpu\"` hides the GPUs, and {VISIBLE_GPUS} names some");
    Err(source.error(span, message, hint))
}

fn variable(
    source: &SourceFile,
    name: &Located<String>,
    value: &Located<String>,
    space: &Space,
) -> Result<(String, Template), SpecError> {
    if name.value.is_empty() || name.value.contains(['=', '\0']) {
        let message = format!("`{}` cannot be the name of an environment variable", name.value.escape_debug());
        return Err(source.error(name.span.clone(), message, "write NAME = \"value\""));
    }
    Ok((name.value.clone(), template(source, value, space)?))
}

/// Returns settings of the first configs in several orders; for a small space, all of them.
pub(super) fn some_settings(space: &Space) -> impl Iterator<Item = Settings> {
    const EACH: usize = 200;
    const FUEL: u64 = 5000;
    let walks = std::iter::once(Walk::new(space)).chain((0..3).map(|seed| Walk::shuffled(space, seed)));
    walks
        .flat_map(|mut walk| {
            let mut fuel = FUEL;
            std::iter::from_fn(move || walk.advance(&mut fuel).found()).take(EACH)
        })
        .map(|config| space.settings(&config))
}

fn samples(source: &SourceFile, text: &Located<Value>, space: &Space) -> Result<Expression, SpecError> {
    let is_count = |count: &Value| count.as_f64().is_some_and(|count| count > 0.0);
    let hint = "a parameter that is not active has no value; write for example `batch * accum if big else batch`";
    counted(source, text, space, ("samples per step must be a positive number", hint), is_count)
}

fn ranks(source: &SourceFile, text: &Located<Value>, space: &Space) -> Result<Expression, SpecError> {
    let is_count = |count: &Value| count.as_i64().is_some_and(|count| (1..=i64::from(u32::MAX)).contains(&count));
    let hint = "write how many processes there are, such as ranks = 4 or ranks = \"nodes * gpus\"";
    counted(source, text, space, ("`ranks` must be a whole number from 1 on", hint), is_count)
}

/// Reads an expression that gives a certain kind of number for every config.
fn counted(
    source: &SourceFile,
    text: &Located<Value>,
    space: &Space,
    (must_be, hint): (&str, &str),
    is_count: impl Fn(&Value) -> bool,
) -> Result<Expression, SpecError> {
    let written = Located { value: text.value.to_string(), span: text.span.clone() };
    let parsed = expression(source, &written)?;
    let names = || space.parameters().iter().map(Parameter::name).chain(space.derived().iter().map(Derived::name));
    if let Some(unknown) = parsed.names().iter().find(|name| names().all(|known| known != name.as_str())) {
        return Err(unknown_name(source, &written, unknown, names()));
    }
    for settings in some_settings(space) {
        if !parsed.value(|name| settings.get(name)).is_ok_and(|count| is_count(&count)) {
            let message = format!("{must_be}, but {} gives another value", settings.line());
            return Err(source.error(text.span.clone(), message, hint));
        }
    }
    Ok(parsed)
}
