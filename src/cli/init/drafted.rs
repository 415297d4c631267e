//! What a first spec has, as text and as JSON.

use std::path::Path;

use gputune::init::{
    Command,
    draft::{Frame, Rate},
    plan::{Plan, Planned, Way},
};
use gputune::report::emit::shell_word;
use serde::Serialize;

/// A spec that was written, or kept.
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
    /// The next commands.
    next: Vec<String>,
    gputune_version: &'static str,
}

/// A parameter that is searched.
#[derive(Debug, Serialize)]
struct Parameter {
    name: String,
    /// The way by which it reaches the script.
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
        let file = shell_word(&spec.display().to_string());
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
        }
    }

    /// Describes the findings.
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

    /// Describes the next step.
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
