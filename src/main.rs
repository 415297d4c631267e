//! The `gputune` command.

#![warn(clippy::unwrap_used)]
// `eprintln!` panics if the reader of standard error is gone. `say!` ignores such an error.
#![deny(clippy::print_stderr)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The same executable also supervises probes; see `gputune::probe::supervisor`.
    gputune::probe::supervisor::run_if_asked().unwrap_or_else(cli::main)
}
