//! Messages between gputune processes: one line of JSON each.

use std::io::{self, BufRead, Read};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest line to read, in bytes. A measurement has some ten thousand, the hook's files some hundred thousand.
const LONGEST_LINE: u64 = 16 << 20;

/// Reads a line. Returns `None` at the end, and an error for a line that is not of this protocol.
pub(super) fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    input.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        // The line is too long, or the other side ended in the middle of it.
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns a message as a line, with its line end.
pub(super) fn line_of(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
