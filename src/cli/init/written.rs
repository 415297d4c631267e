//! Writes a first spec with its templates, as a whole or not at all, and describes it as text and as JSON.

use std::io;
use std::path::Path;
use std::time::Duration;

use gputune::init::draft::{Frame, Rate, RenderedFile};
use gputune::init::plan::{Plan, Planned, Way};
use gputune::init::{Command, Template};
use gputune::model::Measurement;
use gputune::report::emit::shell_word;
use gputune::spec::Spec;
use serde::Serialize;
use tempfile::TempPath;

use super::Args;
use crate::cli::exit::Failed;
use crate::cli::{folder, paths};

/// Writes the spec as a whole or not at all, and only if it can be loaded. Returns an existing spec that is kept.
pub(super) fn write(args: &Args, folder: &Path, text: &str, templates: &[Template]) -> Result<Spec, Failed> {
    let failed = |error: io::Error| {
        let message = format!("cannot write {}: {error}", args.out.display());
        Failed::impossible(message)
            .hint("is the folder there, and may this user write in it? Choose another file with --out FILE")
    };
    let is_kept = args.keeps_spec();
    // Templates are written first, because the spec is not accepted without them. A failure removes them again.
    let named = templates.iter().filter_map(|template| Some((rendered(&args.out, template)?.0, template)));
    let missing = named.filter(|(name, _)| !(is_kept && folder.join(name).exists()));
    let placed = missing.map(|(name, template)| place(&folder.join(name), &template.text, args.fresh));
    let mut placed = placed.collect::<io::Result<Vec<TempPath>>>().map_err(failed)?;
    let file = folder::temporary(folder, text).map_err(failed)?;
    let spec = Spec::load(file.path()).map_err(|error| {
        let message = format!("the spec for this command would not be accepted: {}", error.message);
        Failed::impossible(message)
            .hint("nothing was written; write the spec by hand, as docs/spec.md says, and report this, please")
    })?;
    if is_kept {
        return same_job(&args.out, spec);
    }
    folder::persist(file, &args.out, args.fresh).map_err(failed)?;
    placed.iter_mut().for_each(|placed| placed.disable_cleanup(true));
    Ok(spec)
}

/// Returns the existing spec if it runs the same command as the new spec. A different command is an error.
fn same_job(path: &Path, new: Spec) -> Result<Spec, Failed> {
    let old = Spec::load(path)?;
    let device = |spec: &Spec| spec.device().map_err(Failed::from);
    if old.fingerprint(&device(&old)?).command == new.fingerprint(&device(&new)?).command {
        return Ok(old);
    }
    let message = format!("{} is there already, and runs another command", path.display());
    let search = paths::word(path);
    Err(Failed::usage(message).hint(format!(
        "replace it with --fresh (the old folder is kept), or search it unchanged: gputune search {search}"
    )))
}

/// Returns true if the existing spec is kept, and its baseline runs exactly the command `words`.
pub(super) fn is_there_for(args: &Args, words: &[String]) -> bool {
    let Some(spec) = Some(&args.out).filter(|_| args.keeps_spec()) else { return false };
    let Ok(spec) = Spec::load(spec) else { return false };
    let stated = spec.baseline.clone().unwrap_or_default();
    let Ok(config) = spec.space.as_it_is_with(&stated) else { return false };
    let settings = spec.space.settings(&config);
    let rendered = spec.step.template().render(&settings, Path::new("gputune"), Path::new("."));
    rendered.command == words && rendered.files.is_empty()
}

/// Describes the file that is rendered from a template. `out` is the path of the spec, and the command runs in `cwd`.
pub(super) fn rendered_file(out: &Path, cwd: &Path, template: &Template) -> Option<RenderedFile> {
    let (name, path) = rendered(out, template)?;
    let own = template.config.strip_prefix(cwd).unwrap_or(&template.config);
    Some(RenderedFile { template: name, path, replaces: template.is_opened.then(|| own.display().to_string()) })
}

/// Returns the names of the template, which lies next to the spec, and of the rendered file.
fn rendered(out: &Path, template: &Template) -> Option<(String, String)> {
    let name = template.config.file_name()?.to_str()?;
    let stem = out.file_stem()?.to_str()?;
    Some((format!("{stem}.{name}.in"), name.to_owned()))
}

/// Writes a template to `path`. Dropping the result removes the file, unless its clean-up was disabled.
fn place(path: &Path, text: &str, replaces: bool) -> io::Result<TempPath> {
    folder::persist(folder::temporary(path.parent().unwrap_or(Path::new(".")), text)?, path, replaces)?;
    TempPath::try_from_path(path)
}

/// A written spec, for the text and the JSON that `gputune init` prints.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Drafted {
    format: u32,
    spec: String,
    /// True if the spec was there already.
    #[serde(skip)]
    is_kept: bool,
    script: String,
    preset: &'static str,
    #[serde(skip)]
    about: &'static str,
    /// The page of the documentation about the framework.
    #[serde(skip)]
    page: &'static str,
    parameters: Vec<Parameter>,
    /// False if gputune cannot see how fast the script trains.
    has_rate: bool,
    time: String,
    next: Vec<String>,
    gputune_version: &'static str,
    /// The settings that are not searched with the reasons, the most important first.
    #[serde(skip)]
    not_searched: Vec<(String, String)>,
    /// The measurement of the unmodified job by the first run, and how long the run took.
    #[serde(skip)]
    pub(in crate::cli) measured: Option<(Measurement, Duration)>,
}

#[derive(Debug, Serialize)]
struct Parameter {
    name: String,
    /// The way by which the parameter reaches the script.
    by: &'static str,
}

/// The ways by which parameters reach a script, with their labels on the terminal.
const WAYS: [(&str, &str); 5] = [
    ("argument", "arguments"),
    ("adapter", "adapter"),
    ("variable", "variables"),
    ("file", "file"),
    ("config", "config"),
];

fn way(parameter: &Planned) -> &'static str {
    match &parameter.way {
        Way::Argument(_) => "argument",
        Way::Target(target) if target.starts_with("env.") => "variable",
        Way::Target(_) => "adapter",
        Way::File(_) => "file",
        Way::Config => "config",
    }
}

impl Drafted {
    pub(super) fn of((spec, is_kept): (&Path, bool), command: &Command, plan: &Plan, frame: &Frame<'_>) -> Self {
        let has_rate = frame.rate != Rate::Missing;
        let file = paths::word(spec);
        let of = |parameter: &Planned| Parameter { name: parameter.name.clone(), by: way(parameter) };
        let diagnosis = has_rate.then(|| format!("gputune diagnose {file}"));
        Self {
            format: 1,
            spec: spec.display().to_string(),
            is_kept,
            script: command.name().to_owned(),
            preset: plan.preset.name,
            about: plan.preset.about,
            page: plan.preset.page,
            parameters: plan.parameters.iter().map(of).collect(),
            has_rate,
            time: frame.time.to_owned(),
            next: diagnosis.into_iter().chain([format!("gputune search {file}")]).collect(),
            gputune_version: env!("CARGO_PKG_VERSION"),
            not_searched: plan.not_searched(),
            measured: None,
        }
    }

    /// Returns true if the search sets an option of the script.
    pub(in crate::cli) fn has_options(&self) -> bool {
        self.parameters.iter().any(|parameter| parameter.by == "argument")
    }

    /// Describes the script's framework and the searched parameters, for the terminal.
    pub(in crate::cli) fn summary(&self) -> String {
        let Self { script, about, page, .. } = self;
        let mut text = format!("{script}: {about}\n");
        for (by, label) in WAYS {
            let names = self.parameters.iter().filter(|parameter| parameter.by == by);
            let names: Vec<&str> = names.map(|parameter| parameter.name.as_str()).collect();
            if !names.is_empty() {
                text += &format!("  {label:<10} {}\n", names.join(", "));
            }
        }
        text += &format!("{} {}\n", if self.is_kept { "kept" } else { "wrote" }, shell_word(&self.spec));
        if !self.has_rate {
            text += &format!(
                "\ngputune cannot see yet how fast {script} trains: {page} shows the three lines for it,\nor write the \
                 pattern of a rate that it prints into [step].\n"
            );
        }
        text
    }

    /// Describes the settings that are not searched: the most important in one line, or each in a line.
    pub(in crate::cli) fn not_searched(&self, is_verbose: bool) -> String {
        let shown = if is_verbose { self.not_searched.len() } else { 1 };
        let more = match self.not_searched.len().saturating_sub(shown) {
            0 => String::new(),
            more => format!("; -v lists {more} more"),
        };
        let line = |(name, why): &(String, String)| format!("Not searched: {name} ({why}){more}.\n");
        self.not_searched.iter().take(shown).map(line).collect()
    }

    pub(super) fn next(&self) -> String {
        let about = |command: &str| match command.starts_with("gputune diagnose") {
            true => "what the step waits for, in two minutes".to_owned(),
            false => format!("the best config, in {} at most", self.time),
        };
        let width = self.next.iter().map(String::len).max().unwrap_or(0);
        let lines = self.next.iter().map(|command| format!("  {command:<width$}   {}\n", about(command)));
        let head = if self.has_rate { "next:" } else { "next, once gputune can see it:" };
        format!("\n{head}\n{}", lines.collect::<String>())
    }
}
