//! The one way to standard output.

use std::io::{self, Write};

use super::exit::{Exit, Failed};

/// The width of the terminal; elsewhere what `COLUMNS` says, or 80.
pub(super) fn columns() -> usize {
    const ELSEWHERE: usize = 80;
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    let terminal = console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    terminal.or(told).unwrap_or(ELSEWHERE).clamp(40, 120)
}

/// Prints a text; a reader that is gone ends the program quietly.
pub(super) fn print(text: &str) -> Result<(), Failed> {
    print_bytes(text.as_bytes())
}

/// The same with what need not be text.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failed> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failed::ClosedPipe),
        Err(error) => Err(Failed::new(Exit::Impossible, format!("cannot write to standard output: {error}"))),
    }
}
