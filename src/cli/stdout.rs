//! Writes to standard output; no other module does.

use std::io::{self, Write};

use serde::Serialize;

use super::exit::Failed;

/// Prints a text. A reader that is gone is no failure: the command ends with its own exit code.
pub(super) fn print(text: &str) -> Result<(), Failed> {
    print_bytes(text.as_bytes())
}

/// Prints an object as a line of JSON, as [`stream`] does.
pub(super) fn stream_json(object: &impl Serialize) -> Result<(), Failed> {
    stream(&(serde_json::to_string(object)? + "\n"))
}

/// Prints an object as JSON on several lines, for `--json`.
pub(super) fn print_json(object: &impl Serialize) -> Result<(), Failed> {
    print(&(serde_json::to_string_pretty(object)? + "\n"))
}

pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failed> {
    match streamed(bytes) {
        Err(Failed::ClosedPipe) => Ok(()),
        printed => printed,
    }
}

/// Prints a part of an output that goes on until its reader is gone, which is an error here.
pub(super) fn stream(text: &str) -> Result<(), Failed> {
    streamed(text.as_bytes())
}

fn streamed(bytes: &[u8]) -> Result<(), Failed> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failed::ClosedPipe),
        Err(error) => Err(Failed::impossible(format!("cannot write to standard output: {error}"))),
    }
}
