//! `gputune init`: writes a first spec for a script.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gputune::init::{
    Argument, Command, Constant, Means, Seen, Source, Template, deepspeed,
    draft::{self, Frame, Rate},
    lines_to_add, missing,
    plan::{self, Found, Plan, Way},
    preset::{self, PRESETS, Preset, Recognised},
    setting_files,
};
use gputune::machine::Machine;
use gputune::model::quantity;

use super::asking::{Asked, Told};
use super::exit::{Exit, Failed};
use super::{diagnostic, first_run, folder, paths, scripts, stdout};

mod written;

use written::Drafted;

/// Write a first spec for a training script
///
/// Runs the script for three training steps to see what it uses, and writes a spec with comments. What the script writes in
/// this time is discarded. On a terminal it asks at most three questions.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  gputune init
  gputune init train.py
  gputune init -- python3 train.py --data imgs/
  gputune init --no-run train.py
  gputune init --yes --preset torchrun -- torchrun --nproc-per-node 8 train.py")]
pub(super) struct Args {
    /// Ask nothing, take the defaults
    #[arg(short, long)]
    yes: bool,
    /// Do not run the script for a few steps; read its source and its --help only
    #[arg(long)]
    no_run: bool,
    /// The framework of the script [default: as its first run shows, else by its launcher and imports]
    #[arg(long, value_parser = super::one_of(PRESETS, |preset| (preset.name, preset.about)))]
    preset: Option<&'static Preset>,
    /// The file for the spec
    #[arg(long, value_name = "FILE", default_value = folder::OWN_SPEC)]
    out: PathBuf,
    /// Start over: an earlier FILE is kept as FILE.1
    #[arg(long)]
    fresh: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Keep a file that is there for the same job
    #[arg(skip)]
    keep: bool,
    /// Print no progress
    #[arg(skip)]
    quiet: bool,
    /// How long the search may take [default: 20m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    time: Option<String>,
    /// The script [default: that of this folder]
    #[arg(value_name = "SCRIPT")]
    script: Vec<OsString>,
    /// The command that trains, with its options
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn duration(text: &str) -> Result<String, String> {
    match quantity::parse_duration(text) {
        Ok(Duration::ZERO) => Err("this time is zero; write it like `20m`".to_owned()),
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Args {
    /// Makes the arguments for the training command `words`. Asks nothing, and keeps an existing spec of the same job.
    pub(super) fn keeping(words: Vec<OsString>, out: PathBuf, time: Option<String>, fresh: bool, quiet: bool) -> Self {
        Self { yes: true, out, fresh, keep: true, quiet, time, command: words, ..Self::default() }
    }

    /// Returns true if the spec is there already and stays.
    fn keeps_spec(&self) -> bool {
        self.keep && !self.fresh && self.out.is_file()
    }
}

/// Returns the command of the current folder: its one obvious script.
pub(super) fn words_of_folder() -> Result<Vec<OsString>, Failed> {
    let cwd = std::env::current_dir()?;
    Ok(scripts::of_folder(&cwd, false, "tune")?.into_iter().map(OsString::from).collect())
}

pub(super) fn run(args: &Args) -> super::Result {
    // `None` cannot occur here, because only `gputune tune` keeps an existing spec.
    let Some(drafted) = drafted(args)? else { return Ok(Exit::Found) };
    if args.json {
        stdout::print_json(&drafted)?;
    } else {
        stdout::print(&(drafted.summary() + &drafted.next()))?;
    }
    Ok(Exit::Found)
}

/// Writes a spec. Returns `None` if an existing spec is kept whose baseline runs exactly this command.
pub(super) fn drafted(args: &Args) -> Result<Option<Drafted>, Failed> {
    let cwd = std::env::current_dir()?;
    refuse_to_replace(args)?;
    let asks = !args.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let python = python();
    let words =
        args.script.iter().chain(&args.command).map(|word| word.clone().into_string().map_err(|word| not_text(&word)));
    let words = words.collect::<Result<Vec<String>, Failed>>()?;
    let words = if words.is_empty() { scripts::of_folder(&cwd, asks, "init")? } else { runnable(words, &cwd) };
    let command = Command::new(words, &python).looked_into(&cwd, &python);
    let source = read_source(&command, &cwd)?;
    if written::is_there_for(args, &command.words) {
        return Ok(None);
    }
    let time = args.time.as_deref().and_then(|time| quantity::parse_duration(time).ok());
    let seen = if args.no_run { None } else { first_run::of(&command, time, args.quiet, args.keep)? };
    let seen = seen.as_ref();
    let (source, preset) = recognised(args, &command, source, seen, asks)?;
    let asked = Asked { command: &command, source: &source, seen, cwd: &cwd, python: &python, is_quiet: args.quiet };
    let Told { arguments, values, told_by } = asked.arguments()?;
    let time = match &args.time {
        Some(time) => time.clone(),
        None if asks => scripts::ask("How long may the search take?", "20m", duration)?,
        None => "20m".to_owned(),
    };
    let machine = Machine::look(&cwd);
    let means = Means::of(&machine);
    let found = Found { command: &command, arguments: &arguments, source: &source, seen, preset, means: &means };
    let unwritable = |error: gputune::init::Unwritable| {
        Failed::usage(error.to_string()).hint("put the command into a script, and give that")
    };
    let mut plan = plan::plan(&found).map_err(unwritable)?;
    let template = if preset.name == "deepspeed" { deepspeed::render(&mut plan, &command, &means, &cwd) } else { None };
    let mut templates: Vec<Template> = template.into_iter().collect();
    if templates.is_empty() {
        templates = setting_files::render(&mut plan, &found, &cwd);
    }
    refuse_what_no_search_can_tune(args, &plan, &found, &cwd)?;
    let folder = paths::folder_of(&args.out);
    let elsewhere = folder.canonicalize().is_ok_and(|folder| Some(folder) != cwd.canonicalize().ok());
    let frame = Frame {
        cwd: elsewhere.then_some(cwd.as_path()),
        rate: rate(preset, &source),
        time: &time,
        machine: &means.line(),
        told_by: &told_by,
        file: &paths::word(&args.out),
        files: templates.iter().filter_map(|template| written::rendered_file(&args.out, &cwd, template)).collect(),
    };
    let text = draft::write(&plan, &frame).map_err(unwritable)?;
    let is_kept = args.keeps_spec();
    let spec = written::write(args, folder, &text, &templates)?;
    let of_config = |warning: &&String| {
        let named = plan.parameters.iter().filter(|parameter| parameter.way == Way::Config);
        named.into_iter().any(|parameter| warning.contains(&format!("`{}`", parameter.name)))
    };
    warn_of_missing(&command, &arguments, &values, &plan);
    warn_of_no_launcher(&command, &source);
    spec.warnings.iter().filter(|warning| !of_config(warning)).for_each(|warning| diagnostic::print_warning(warning));
    let mut drafted = Drafted::of((&args.out, is_kept), &command, &plan, &frame);
    // A kept spec may state a baseline that differs from the measured command.
    drafted.measured = seen.and_then(|seen| seen.measured.clone()).filter(|_| !is_kept);
    Ok(Some(drafted))
}

fn refuse_to_replace(args: &Args) -> Result<(), Failed> {
    if args.out.is_dir() {
        let message = format!("{} is a folder", args.out.display());
        return Err(Failed::usage(message).hint("give the file: --out FILE"));
    }
    if !args.fresh && !args.keep && args.out.symlink_metadata().is_ok() {
        let message = format!("{} is there already", args.out.display());
        let hint = "choose another name with --out FILE, or start over with --fresh (the old file is kept)";
        return Err(Failed::usage(message).hint(hint));
    }
    Ok(())
}

/// Refuses a plan without parameters. If a search follows at once, also refuses a command of unknown throughput.
fn refuse_what_no_search_can_tune(args: &Args, plan: &Plan, found: &Found<'_>, cwd: &Path) -> Result<(), Failed> {
    let reason = match (plan.parameters.is_empty(), rate(found.preset, found.source)) {
        (true, _) => "gputune found no setting that this command accepts",
        (false, Rate::Missing) if args.keep => "gputune cannot see how fast this command trains",
        (false, _) => return Ok(()),
    };
    let foreign = plan.preset.foreign_framework();
    let foreign = foreign.map(|name| {
        format!("; its hook sets and sees PyTorch and `fit` of Keras 3 only, and this script trains with {name}")
    });
    let closed = plan.closed.iter().map(|(name, reason)| format!("; {name} is not searched, since {reason}"));
    let notes: String = plan.notes.iter().map(|note| format!("; {note}")).chain(closed).collect();
    let constant = found.source.constants(cwd).into_iter().next().filter(|_| plan.parameters.is_empty());
    let constant = constant.map(|constant| {
        let Constant { place, code, .. } = constant;
        format!("; {place} has `{code}`: let the script read it from an option or the environment")
    });
    let (foreign, constant) = (foreign.unwrap_or_default(), constant.unwrap_or_default());
    Err(Failed::usage(format!("{reason}{constant}{foreign}{notes}")).hint(format!(
        "add these lines to the script (`pip install` gputune's package, see {}):\n  {}",
        plan.preset.page,
        lines_to_add(found, plan, cwd).join("\n  ")
    )))
}

fn not_text(word: &std::ffi::OsStr) -> Failed {
    let message = format!("the word `{}` of the command is no UTF-8, and a spec is", word.display());
    Failed::usage(message).hint("rename the file, or put the command into a script and give that")
}

/// Returns the interpreter for a bare script: `python3` if it is installed, else `python`.
pub(super) fn python() -> String {
    ["python3", "python"].into_iter().find(|name| is_program(name)).unwrap_or("python3").to_owned()
}

/// Returns true if a program of this name is in a folder of the `PATH`.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Names a script of this folder by its path if no program has its name: `train.sh` becomes `./train.sh`. A shell script that is
/// not executable gets `sh` or `bash` in front.
fn runnable(mut words: Vec<String>, cwd: &Path) -> Vec<String> {
    let Some(first) = words.first_mut() else { return words };
    let file = cwd.join(&*first);
    let is_shell = first.ends_with(".sh");
    if first.starts_with('-')
        || first.ends_with(".py")
        || !file.is_file()
        || (!first.contains('/') && is_program(first))
    {
        return words;
    }
    let is_executable = file.metadata().is_ok_and(|data| data.permissions().mode() & 0o111 != 0);
    if is_shell && !is_executable {
        let shell = ["bash", "sh"].into_iter().find(|name| is_program(name)).unwrap_or("sh");
        words.insert(0, shell.to_owned());
    } else if !first.contains('/') {
        *first = format!("./{first}");
    }
    words
}

fn read_source(command: &Command, cwd: &Path) -> Result<Source, Failed> {
    Source::read(command, cwd).map_err(|error| {
        let message = format!("cannot read the script {}: {error}", command.name());
        Failed::usage(message).hint("is the path right, seen from this folder?")
    })
}

/// Warns if the command lacks a value that the script requires. The spec is written, but all its probes would fail.
fn warn_of_missing(command: &Command, arguments: &[Argument], values: &[String], plan: &Plan) {
    let planned = plan.parameters.iter().filter_map(|parameter| match &parameter.way {
        Way::Argument(name) => Some(name.as_str()),
        _ => None,
    });
    let missing = missing(command, arguments, values, &planned.collect::<Vec<_>>());
    if !missing.is_empty() {
        diagnostic::print_warning(&format!(
            "{} needs {}, and every probe fails without it; add it to `command`, or give the whole command: \
             gputune init -- {} {}",
            command.name(),
            missing.join(", "),
            paths::line(&command.words),
            missing.join(" ")
        ));
    }
}

/// Warns if a script cannot run without a launcher: its probes would fail.
fn warn_of_no_launcher(command: &Command, source: &Source) {
    if let Some(variable) = source.needs_launcher(command) {
        let told: Vec<_> = std::iter::once(command.name().to_owned()).chain(command.told().iter().cloned()).collect();
        diagnostic::print_warning(&format!(
            "{} reads {variable}, which a launcher sets, and every probe would fail without; give the whole command: \
             gputune init -- torchrun --nproc-per-node 2 {}",
            command.name(),
            paths::line(&told)
        ));
    }
}

/// Returns the source and the preset. A source that names no framework gets the modules that the first run imported.
fn recognised(
    args: &Args,
    command: &Command,
    mut source: Source,
    seen: Option<&Seen>,
    asks: bool,
) -> Result<(Source, &'static Preset), Failed> {
    let is_any = matches!(preset::recognise(command, &source), Recognised::As(preset) if preset.name == "any");
    // The training loop may be in an installed package that the source only calls.
    let modules = seen.filter(|_| is_any && !source.speaks_protocol).map(|seen| &seen.notes.modules);
    source.modules.extend(modules.into_iter().flatten().cloned());
    let found = match args.preset.or_else(|| seen?.preset(command)) {
        Some(preset) => preset,
        None => by_source(command, &source, asks)?,
    };
    Ok((source, found))
}

fn by_source(command: &Command, source: &Source, asks: bool) -> Result<&'static Preset, Failed> {
    match preset::recognise(command, source) {
        Recognised::As(preset) => Ok(preset),
        Recognised::Unclear(presets) if asks && !presets.is_empty() => {
            let choices: Vec<(String, &'static Preset)> =
                presets.iter().map(|preset| (format!("{:<12} {}", preset.name, preset.about), *preset)).collect();
            scripts::choose("Which of these trains?", &choices).copied()
        }
        Recognised::Unclear(presets) => {
            let names: Vec<&str> = presets.iter().map(|preset| preset.name).collect();
            let first = presets.first().copied().or(PRESETS.last());
            let first = first.ok_or_else(|| Failed::impossible("there is no preset"))?;
            let (names, taken) = (names.join(", "), first.name);
            say!("note: the script uses several frameworks ({names}); taken as {taken}, or say --preset");
            Ok(first)
        }
    }
}

fn rate(preset: &Preset, source: &Source) -> Rate {
    if let Some(adapter) = preset.adapter {
        return Rate::Adapter(adapter);
    }
    if source.speaks_protocol || source.calls().any(|call| call.name == "gputune.step") {
        return Rate::Events;
    }
    match &source.printed_rate {
        Some((pattern, unit)) => Rate::Printed { pattern: pattern.clone(), unit: unit.clone() },
        None => Rate::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_of_the_folder_is_run_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in
            [("train.sh", 0o755), ("plain.sh", 0o644), ("train", 0o755), ("train.py", 0o644), ("sh", 0o755)]
        {
            let file = folder.path().join(name);
            std::fs::write(&file, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        for (first, expected) in [
            ("train.sh", "./train.sh --a"),
            ("./train.sh", "./train.sh --a"),
            ("train", "./train --a"),
            ("train.py", "train.py --a"),
            ("sh", "sh --a"),
            ("none.sh", "none.sh --a"),
        ] {
            let words = runnable(vec![first.to_owned(), "--a".to_owned()], folder.path());
            assert_eq!(words.join(" "), expected);
        }
        let words = runnable(vec!["plain.sh".to_owned()], folder.path()).join(" ");
        assert!(words.ends_with("sh plain.sh") && !words.contains('/'), "{words}");
    }
}
