//! `gputune emit`: prints the best config of a search again, in any format.

use std::path::{Path, PathBuf};

use gputune::model::{Parameter, Settings, Value};
use gputune::probe::StepTemplate;
use gputune::report::BestReport;
use gputune::report::emit::{Chosen, Format, Written};
use gputune::search::{Kept, Study};
use gputune::spec::Spec;

use super::apply::{Change, Language, difference};
use super::best::{number_of, run_of};
use super::exit::{Exit, Failed};
use super::{diagnostic, folder, paths, report, stdout};

/// Print the best config of a search again, in any format
///
/// Standard error lists settings that the format cannot express, and how a changed batch size affects the learning rate.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune emit gputune-out/config --format json
  gputune emit gputune-out/config --format command
  gputune emit gputune-out/config --format huggingface > training_args.json
  args=$(gputune emit gputune-out/config --format args) && eval \"python train.py $args\"
  set -a; eval \"$(gputune emit gputune-out/config --format env)\"; set +a
  gputune emit gputune-out/config --apply train.yaml --map workers=data.num_workers")]
pub(super) struct Args {
    /// The folder of the search [default: the newest below gputune-out]
    dir: Option<PathBuf>,
    /// The format of the best config
    #[arg(long, value_name = "FORMAT", default_value = "toml", value_parser = folder::format_parser())]
    format: &'static Format,
    /// Print JSON: --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Change the values in this TOML, YAML or JSON file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "json"])]
    apply: Option<PathBuf>,
    /// With --apply: where in the file a parameter goes, such as batch_size=train.batch_size; may be given again
    /// [default: the setting of the same name]
    #[arg(long, value_name = "NAME=PATH", requires = "apply", value_parser = mapping)]
    map: Vec<(String, String)>,
    /// With --apply: leave a parameter out; may be given again
    #[arg(long, value_name = "NAME", requires = "apply")]
    skip: Vec<String>,
    /// With --apply: add settings that the file does not have
    #[arg(long, requires = "apply")]
    add: bool,
    /// With --apply: show what would change, and write nothing
    #[arg(long, requires = "apply")]
    dry_run: bool,
}

fn mapping(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.to_owned())),
        _ => Err("write NAME=PATH, such as batch_size=train.batch_size".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> super::Result {
    let found = Found::read(&folder::of_search(args.dir.as_deref())?)?;
    match &args.apply {
        Some(file) => apply_to(args, file, &found)?,
        None => found.print(folder::format_or_json(args.format, args.json))?,
    }
    if let Some(rate) = &found.best.learning_rate {
        diagnostic::print_note(&rate.sentence());
    }
    Ok(Exit::Found)
}

pub(super) fn best_in(kept: &Kept) -> Result<BestReport, Failed> {
    report::best_of(kept).ok_or_else(|| {
        let message = format!("{} has no best config: nothing feasible was found", kept.folder.display());
        let hint = format!("see what became of each trial: gputune report {}", paths::word(&kept.folder));
        Failed::new(Exit::NothingFeasible, message).hint(hint)
    })
}

/// The best config in a folder, with the facts about its parameters.
struct Found {
    best: BestReport,
    kept: Option<Kept>,
}

impl Found {
    /// Reads the folder of a search, which may still be running. `best.json` alone is enough.
    fn read(dir: &Path) -> Result<Self, Failed> {
        match report::read(dir) {
            Ok(kept) => Ok(Self { best: best_in(&kept)?, kept: Some(kept) }),
            Err(error) => {
                let text = std::fs::read_to_string(dir.join(folder::BEST_JSON)).map_err(|_| error)?;
                let best = serde_json::from_str(&text).map_err(|error| {
                    let path = dir.join(folder::BEST_JSON);
                    Failed::usage(format!("{} is no best config: {error}", path.display()))
                })?;
                Ok(Self { best, kept: None })
            }
        }
    }

    /// Returns the possible settings of a parameter, at most the first `MOST`.
    fn settings_of(&self, name: &str) -> Vec<Value> {
        const MOST: u32 = 64;
        let space = self.kept.as_ref().map(|kept| &kept.study.space);
        let parameter = space.and_then(|space| space.parameters().get(space.parameter_index(name)?));
        let count = |parameter: &Parameter| u32::try_from(parameter.len()).unwrap_or(MOST).min(MOST);
        parameter.into_iter().flat_map(|found| (0..count(found)).map(|level| found.value(level))).collect()
    }

    fn print(&self, format: &Format) -> Result<(), Failed> {
        let Self { best, kept } = self;
        match kept {
            Some(kept) => print(format, best, &kept.study, &kept.step, &paths::absolute(&kept.folder)),
            None => {
                let next = best.next();
                write(format, &Chosen { next: next.as_deref(), ..Chosen::of(&settings_for(format, best)) })
            }
        }
    }
}

/// Writes the config into an existing file, and prints the lines that change.
fn apply_to(args: &Args, file: &Path, found: &Found) -> Result<(), Failed> {
    let settings = &found.best.config;
    for name in args.map.iter().map(|(name, _)| name).chain(&args.skip) {
        if settings.get(name).is_none() {
            let names: Vec<&str> = settings.iter().map(|(name, _)| name).collect();
            let message = format!("the best config has no parameter `{name}`");
            return Err(Failed::usage(message).hint(format!("it has {}", names.join(", "))));
        }
    }
    let place = |name: &str| args.map.iter().find(|(mapped, _)| mapped == name).map(|(_, path)| path.clone());
    let changes = settings.iter().filter(|(name, _)| !args.skip.iter().any(|skipped| skipped == name));
    let changes = changes.map(|(name, value)| {
        let among = found.settings_of(name);
        Change { name: name.to_owned(), value: value.clone(), path: place(name), among }
    });
    let changes: Vec<Change> = changes.collect();
    let refused = |refusal: super::apply::Refusal| {
        Failed::usage(format!("{}: {}", file.display(), refusal.message)).hint(refusal.hint)
    };
    let language = Language::of(file).map_err(|refusal| Failed::usage(refusal.message).hint(refusal.hint))?;
    // A link stays a link; gputune writes its target.
    let (target, old) = file
        .canonicalize()
        .and_then(|target| std::fs::read_to_string(&target).map(|text| (target, text)))
        .map_err(|error| {
            Failed::usage(format!("cannot read {}: {error}", file.display()))
                .hint("--apply writes into a file that is there; without it, the config is printed")
        })?;
    let new = language.edited(&old, &changes, args.add).map_err(refused)?;
    for parameter in found.kept.iter().flat_map(|kept| kept.study.space.parameters()) {
        if settings.get(parameter.name()).is_none() {
            let note = format!("`{}` is not active in the best config: the file keeps its own", parameter.name());
            diagnostic::print_note(&note);
        }
    }
    if new == old {
        diagnostic::print_note(&format!("{} has the best config already", file.display()));
        return Ok(());
    }
    stdout::print(&format!("{}\n{}", file.display(), difference(&old, &new)))?;
    if args.dry_run {
        diagnostic::print_note("nothing was written: this is a dry run");
        return Ok(());
    }
    folder::replace(&target, new.as_bytes()).map_err(|error| {
        Failed::impossible(format!("cannot write {}: {error}", file.display()))
            .hint("may this user write it and its folder?")
    })
}

/// Prints the best config of a search with the folder `out`. Lists on stderr the settings that the format cannot express.
pub(super) fn print(
    format: &Format,
    best: &BestReport,
    study: &Study,
    step: &StepTemplate,
    out: &Path,
) -> Result<(), Failed> {
    let run = run_of(step, &study.space, out, number_of(study, &best.config));
    let (settings, next) = (&settings_for(format, best), best.next());
    let (space, apply) = (Some(&*study.space), &step.apply.applied);
    write(format, &Chosen { settings, apply, space, run: Some(&run), next: next.as_deref() })
}

/// Returns the settings that a format writes: for arguments, variables and commands only the settings to apply.
fn settings_for(format: &Format, best: &BestReport) -> Settings {
    if ["args", "env", "command"].contains(&format.name) {
        return best.to_set().clone();
    }
    let known = best.config.iter().filter(|(_, value)| !value.is_as_it_is());
    known.map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

/// Checks, before the search and not at its end, that the format works for the spec's command.
pub(super) fn check(format: &Format, spec: &Spec) -> Result<(), Failed> {
    let (run, nothing) = (run_of(spec.step.template(), &spec.space, Path::new(""), 0), Settings::default());
    written(format, &Chosen { run: Some(&run), next: Some(""), ..Chosen::of(&nothing) }).map(|_| ())
}

fn write(format: &Format, chosen: &Chosen<'_>) -> Result<(), Failed> {
    let written = written(format, chosen)?;
    stdout::print(&written.text)?;
    written.notes.iter().for_each(|note| diagnostic::print_note(note));
    Ok(())
}

fn written(format: &Format, chosen: &Chosen<'_>) -> Result<Written, Failed> {
    (format.write)(chosen).map_err(|unwritable| {
        let message = format!("`--format {}` has nothing to print: {}", format.name, unwritable.message);
        Failed::usage(message).hint(unwritable.hint)
    })
}
