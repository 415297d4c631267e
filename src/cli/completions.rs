//! `gputune completions`: a script that completes commands and options.

use clap::CommandFactory;
use clap_complete::Shell;

use super::exit::Exit;
use super::stdout;

/// Print a script that completes commands and options in a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gputune completions bash > ~/.local/share/bash-completion/completions/gputune")]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args) -> super::Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "gputune", &mut script);
    stdout::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Found)
}
