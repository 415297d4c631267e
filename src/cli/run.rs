//! `gputune run`: replaces its own process by the job with the best config of a search.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use gputune::probe::{self, StepTemplate};
use gputune::search::Kept;

use super::best::{self, run_of};
use super::exit::{Exit, Failed};
use super::{emit, folder, paths, report};

/// Start the job with the best config of a search
///
/// The job takes the place of gputune: its exit code, signals and output are its own. Nothing is measured. The settings reach it as
/// in a probe: by arguments, variables and files, or by the hook of the adapter.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gputune run
  gputune run gputune-out/config
  gputune run gputune-out/config -- python train.py --epochs 90")]
pub(super) struct Args {
    /// The folder of the search, which may be running [default: the newest below gputune-out]
    dir: Option<PathBuf>,
    /// A command to start in this folder instead of the spec's command. `{name}` in it stands for a setting. Options with
    /// settings are put behind it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(args: &Args) -> super::Result {
    let dir = folder::of_search(args.dir.as_deref())?;
    let kept = report::read(&dir)?;
    let best = emit::best_in(&kept)?;
    let settings = best.to_set();
    let out = paths::absolute(&kept.folder);
    let gputune = paths::gputune_path();
    let step = if args.command.is_empty() { kept.step.clone() } else { step_of(&args.command, &kept, settings)? };
    let trial = best::number_of(&kept.study, &best.config);
    let impossible = |error: io::Error| {
        Failed::impossible(format!("cannot write what the job needs to {}: {error}", out.display()))
            .hint("may this user write there? The job reads its settings there")
    };
    let prepared = probe::prepared(&step, &kept.study.space, (trial, settings), &gputune, &out.join("run"));
    let mut command = prepared.map_err(impossible)?;
    let error = command.exec();
    Err(not_started(&command, &error))
}

/// Returns the step with the user's own command, which runs in the current folder.
fn step_of(words: &[String], kept: &Kept, settings: &gputune::model::Settings) -> Result<StepTemplate, Failed> {
    let run = run_of(&kept.step, &kept.study.space, &kept.folder, 0);
    let step = run.with_command(words, settings);
    let step = step.map_err(|refused| Failed::usage(refused.message).hint(refused.hint))?;
    let cwd = std::env::current_dir()?;
    Ok(StepTemplate { cwd, ..step })
}

/// Returns the failure of a job that did not start, with a shell's exit code (POSIX.1-2017, 2.8.2).
fn not_started(command: &std::process::Command, error: &io::Error) -> Failed {
    let program = command.get_program().display();
    if let Some(cwd) = command.get_current_dir().filter(|cwd| !cwd.is_dir()) {
        return Failed::impossible(format!("the folder of the command is gone: {}", cwd.display()));
    }
    match error.kind() {
        io::ErrorKind::NotFound => Failed::new(Exit::NotFound, format!("{program}: command not found")),
        _ => Failed::new(Exit::NotRunnable, format!("{program}: {error}")),
    }
}
