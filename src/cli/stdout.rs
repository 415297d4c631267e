//! Writes to standard output; nothing else does.

use std::io::{self, Write};

use serde::Serialize;

use super::exit::{Exit, Failed};

/// Prints a text. A reader that is gone is no failure: the command ends with its own exit code.
pub(super) fn print(text: &str) -> Result<(), Failed> {
    print_bytes(text.as_bytes())
}

/// Prints an object as a line of JSON, a part of an output that goes on.
pub(super) fn stream_json(object: &impl Serialize) -> Result<(), Failed> {
    let text = serde_json::to_string(object).map_err(|error| Failed::because(Exit::Impossible, &error))?;
    stream(&(text + "\n"))
}

/// Prints an object as JSON on several lines, for `--json`.
pub(super) fn print_json(object: &impl Serialize) -> Result<(), Failed> {
    let text = serde_json::to_string_pretty(object).map_err(|error| Failed::because(Exit::Impossible, &error))?;
    print(&(text + "\n"))
}

/// Prints bytes, which need not be text.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failed> {
    match streamed(bytes) {
        Err(Failed::ClosedPipe) => Ok(()),
        printed => printed,
    }
}

/// Prints a part of an output that goes on until its reader is gone.
///
/// # Errors
/// The reader is gone, or standard output cannot be written.
pub(super) fn stream(text: &str) -> Result<(), Failed> {
    streamed(text.as_bytes())
}

fn streamed(bytes: &[u8]) -> Result<(), Failed> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failed::ClosedPipe),
        Err(error) => Err(Failed::new(Exit::Impossible, format!("cannot write to standard output: {error}"))),
    }
}
