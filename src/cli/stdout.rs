//! Writes to standard output; nothing else does.

use std::io::{self, Write};

use super::exit::{Exit, Failed};

/// Returns the width of the terminal, else the value of `COLUMNS`, else 80.
pub(super) fn columns() -> usize {
    const ELSEWHERE: usize = 80;
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    let terminal = console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    terminal.or(told).unwrap_or(ELSEWHERE).clamp(40, 120)
}

/// Prints a text; if the reader is gone, the program ends quietly.
pub(super) fn print(text: &str) -> Result<(), Failed> {
    print_bytes(text.as_bytes())
}

/// Prints bytes, which need not be text.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failed> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failed::ClosedPipe),
        Err(error) => Err(Failed::new(Exit::Impossible, format!("cannot write to standard output: {error}"))),
    }
}
