//! The `gputune` command.

#![warn(clippy::unwrap_used)]
// A reader of standard error that is gone must not end the program: `say!` ignores it.
#![deny(clippy::print_stderr)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The same executable also supervises probes; see `gputune::probe::supervisor`.
    gputune::probe::supervisor::run_if_asked().unwrap_or_else(cli::main)
}
