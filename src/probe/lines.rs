//! Messages between processes of gputune: a line of JSON each.

use std::io::{self, BufRead, Read};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest line that is read, in bytes; a measurement has some ten thousand, the hook's files some hundred thousand.
const LONGEST_LINE: u64 = 16 << 20;

/// Reads a line; nothing at the end, and an error for what is no line of this protocol.
pub(super) fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    input.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        // It was cut off by the end of the other side, or is too long.
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A line with its end.
pub(super) fn line_of(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
