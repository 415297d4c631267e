//! Finds the arguments of a script: from its `--help`, its source, and its command.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use gputune::init::{self, Argument, Command, Seen, Source, Words, help};
use gputune::model::quantity;
use gputune::probe::{Brief, Printed, PrintedEnd};
use tempfile::TempDir;

use super::exit::Failed;
use super::{diagnostic, scripts, steps};

/// The guard that refuses writes while a script is asked for its help.
const GUARD: &str = include_str!("../../python/asking/sitecustomize.py");
/// The time after which a script that prints no help is ended: a round number, long enough to import a framework.
const HELP_TIME: Duration = Duration::from_secs(60);

/// Variables for running a script's `--help`: no GPU, no broken lines, and nothing is installed, tracked or kept.
const ASKED_WITH: &[(&str, &str)] = &[
    ("CUDA_VISIBLE_DEVICES", ""),
    ("COLUMNS", "200"),
    ("NO_COLOR", "1"),
    ("TERM", "dumb"),
    ("HF_HUB_OFFLINE", "1"),
    ("WANDB_MODE", "disabled"),
    ("TF_CPP_MIN_LOG_LEVEL", "3"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    // uv then installs nothing before it starts the script (uv's documentation, "Environment variables").
    ("UV_NO_SYNC", "1"),
    ("UV_OFFLINE", "1"),
];

pub(super) struct Told {
    pub(super) arguments: Vec<Argument>,
    /// Positional values that the script requires.
    pub(super) values: Vec<String>,
    /// A sentence for the spec about where the arguments come from.
    pub(super) told_by: String,
}

pub(super) struct Asked<'a> {
    pub(super) command: &'a Command,
    pub(super) source: &'a Source,
    /// The results of the script's first run.
    pub(super) seen: Option<&'a Seen>,
    pub(super) cwd: &'a Path,
    pub(super) python: &'a str,
    /// True if nothing is printed about the question for the script's help.
    pub(super) is_quiet: bool,
}

impl Asked<'_> {
    /// Returns the arguments that the script accepts, and their source.
    pub(super) fn arguments(&self) -> Result<Told, Failed> {
        let mut told = self.by_help_or_source()?;
        let own = self.source.own_options();
        if !own.is_empty() && told.arguments.is_empty() {
            "The script reads its command line itself; names as its source has them.".clone_into(&mut told.told_by);
        }
        told.arguments.extend(own);
        // The script accepts an argument that its command gives, whatever its help or its source says.
        let given = init::told(self.command, &told.arguments);
        if !given.is_empty() && told.arguments.is_empty() {
            "Arguments as the command gives them.".clone_into(&mut told.told_by);
        }
        told.arguments.extend(given);
        // If the command runs a shell script, the values in the shell script replace the defaults of the arguments.
        let mut inner = Words::of(self.command.inner());
        for argument in told.arguments.iter_mut().filter(|_| self.command.inner() != self.command) {
            if let Some(given) = inner.set(argument, "x") {
                argument.default = Some(given.value);
            }
        }
        Ok(told)
    }

    fn by_help_or_source(&self) -> Result<Told, Failed> {
        let declared = self.source.arguments();
        // The first run shows only Hydra's own options, and not the script's settings.
        let seen = self.seen.filter(|_| !self.source.imports("hydra")).map(Seen::arguments).unwrap_or_default();
        if !seen.is_empty() {
            let told_by = "Arguments as the script's first run showed them.".to_owned();
            return Ok(Told { arguments: seen, values: Vec::new(), told_by });
        }
        if let Some(reason) = scripts::no_help(self.command, self.source, self.cwd) {
            let told_by = if declared.is_empty() { reason } else { FROM_SOURCE.to_owned() };
            return Ok(Told { arguments: declared, values: Vec::new(), told_by });
        }
        let line = self.command.asking_for_help(self.python);
        let shown = line.join(" ");
        if !self.is_quiet {
            say!("asking `{shown}` what can be set (at most {}, without a GPU)", quantity::show_duration(HELP_TIME));
        }
        let printed = self.ask(line)?;
        let told = if help::is_help(&printed.text) { help::read(&printed.text) } else { Vec::new() };
        if !told.is_empty() {
            let arguments = told.into_iter().map(|argument| with_default(argument, &declared)).collect();
            let told_by = format!("Arguments as `{shown}` tells them.");
            return Ok(Told { arguments, values: help::values(&printed.text), told_by });
        }
        if !self.is_quiet {
            warn_of_no_help(&printed, &shown, declared.is_empty());
        }
        let told_by = if declared.is_empty() { "The script's arguments are not known." } else { FROM_SOURCE };
        Ok(Told { arguments: declared, values: Vec::new(), told_by: told_by.to_owned() })
    }

    /// Runs the script for its help; the guard refuses writes.
    fn ask(&self, line: Vec<String>) -> Result<Printed, Failed> {
        let scratch = tempfile::Builder::new().prefix("gputune-").tempdir()?;
        let mut env: BTreeMap<String, String> =
            ASKED_WITH.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        env.extend(guarded(&scratch)?);
        let brief = Brief { command: line, env, cwd: self.cwd.to_owned(), time: HELP_TIME };
        brief.run(Path::new(steps::SUPERVISOR)).map_err(|error| Failed::from(&error))
    }
}

const FROM_SOURCE: &str = "Arguments as the script's source declares them.";

/// Writes the guard to disk and returns the variables that load it.
fn guarded(scratch: &TempDir) -> std::io::Result<Vec<(String, String)>> {
    let (guard, temporary) = (scratch.path().join("guard"), scratch.path().join("tmp"));
    fs::create_dir(&guard)?;
    fs::create_dir(&temporary)?;
    fs::write(guard.join("sitecustomize.py"), GUARD)?;
    let theirs = std::env::var("PYTHONPATH").ok().filter(|theirs| !theirs.is_empty());
    let path = std::iter::once(guard.display().to_string()).chain(theirs).collect::<Vec<_>>().join(":");
    let temporary = temporary.display().to_string();
    Ok(vec![
        ("PYTHONPATH".to_owned(), path),
        ("GPUTUNE_ASKING".to_owned(), scratch.path().display().to_string()),
        ("TMPDIR".to_owned(), temporary.clone()),
        ("MPLCONFIGDIR".to_owned(), temporary),
    ])
}

/// Warns that the script printed no help, and says where its arguments come from instead.
fn warn_of_no_help(printed: &Printed, shown: &str, nothing_declared: bool) {
    let problem = match &printed.end {
        PrintedEnd::TimeIsUp => {
            format!("it printed no help within {}, and was ended", quantity::show_duration(HELP_TIME))
        }
        PrintedEnd::TooMuch => "it printed more than a megabyte, which is no help, and was ended".to_owned(),
        PrintedEnd::Failure(end) => format!("it printed no help, and ended with {end}"),
        PrintedEnd::Success => "it printed no help".to_owned(),
    };
    let (of_command, of_source) = ("only the arguments in the command count", "its arguments are read from its source");
    let instead = if nothing_declared { of_command } else { of_source };
    diagnostic::print_warning(&format!("`{shown}`: {problem}; {instead}"));
    let is_failure = matches!(printed.end, PrintedEnd::Failure(_));
    let last = printed.text.lines().rev().find(|line| !line.trim().is_empty()).filter(|_| is_failure);
    if let Some(last) = last {
        let last: String = last.chars().filter(|c| !c.is_control()).take(200).collect();
        say!("  its last line: {last}");
    }
}

/// Adds the default from the source to an argument of the help, if the help has none.
fn with_default(mut argument: Argument, declared: &[Argument]) -> Argument {
    if argument.default.is_none() {
        let same = |known: &&Argument| known.names.iter().any(|name| argument.names.contains(name));
        argument.default = declared.iter().find(same).and_then(|known| known.default.clone());
    }
    argument
}
