//! `gputune completions`, `gputune man` and `gputune schema`: what shells, `man` and editors know about gputune.

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use super::exit::{Exit, Failed};
use super::stdout;

/// Print a script that completes commands and options in a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gputune completions bash > ~/.local/share/bash-completion/completions/gputune")]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

/// Write the manual pages: gputune.1, and one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gputune man ~/.local/share/man/man1")]
pub(super) struct Man {
    /// The folder for the pages; it is made if it is not there
    folder: PathBuf,
}

/// Print the JSON Schema of a spec, which editors use for completion
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gputune schema > gputune.schema.json
  and as the first line of the spec: #:schema ./gputune.schema.json")]
pub(super) struct Schema {}

pub(super) fn run(args: &Args) -> super::Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "gputune", &mut script);
    stdout::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Found)
}

pub(super) fn man(args: &Man) -> super::Result {
    let folder = &args.folder;
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(super::Cli::command(), folder));
    written.map_err(|error| Failed::impossible(format!("cannot write the pages to {}: {error}", folder.display())))?;
    Ok(Exit::Found)
}

pub(super) fn schema() -> super::Result {
    stdout::print_json(&gputune::spec::schema())?;
    Ok(Exit::Found)
}
