//! Splits a journal into eras: a header in the middle of the file begins a new era, whose trials cannot be compared with earlier
//! trials. Only the last era counts; the earlier eras stay in the file.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use super::{FORMAT, Header, JournalError, Line, OlderEras, parse};

/// The complete lines of a journal, with the last era separated.
pub(super) struct Eras<'t> {
    /// The header of the last era, with the totals of the earlier ones.
    pub(super) header: Header,
    /// Its further lines, each with its number in the file.
    pub(super) lines: Vec<(usize, &'t [u8])>,
    /// The number of the last trial of the eras before.
    pub(super) last_number: u32,
}

/// Splits the complete lines of a journal; `None` if it has no line.
pub(super) fn split<'t>(path: &Path, text: &'t [u8]) -> Result<Option<Eras<'t>>, JournalError> {
    let mut lines = text.split_inclusive(|&byte| byte == b'\n').enumerate();
    let Some((_, first)) = lines.next() else { return Ok(None) };
    let mut eras = Eras { header: parse_header(path, 1, first)?, lines: Vec::new(), last_number: 0 };
    for (at, line) in lines {
        if !is_header(line) {
            eras.lines.push((at + 1, line));
            continue;
        }
        let trials = trials(path, &eras.lines)?;
        eras.last_number = trials.iter().map(|(_, line)| line.trial).fold(eras.last_number, u32::max);
        let older = OlderEras { eras: eras.header.older.eras + 1, trials: eras.header.older.trials + trials.len() };
        eras.header = Header { older, ..parse_header(path, at + 1, line)? };
        eras.lines.clear();
    }
    Ok(Some(eras))
}

/// Parses the trials of an era, each with its line's number in the file. A later line with the same trial number replaces the
/// earlier line, but keeps its place and why it was proposed.
pub(super) fn trials(path: &Path, lines: &[(usize, &[u8])]) -> Result<Vec<(usize, Line)>, JournalError> {
    let mut trials: Vec<(usize, Line)> = Vec::new();
    let mut places: HashMap<u32, usize> = HashMap::new();
    for &(at, line) in lines {
        let line: Line = parse(path, at, line)?;
        let place = *places.entry(line.trial).or_insert(trials.len());
        match trials.get_mut(place) {
            Some((_, known)) => *known = Line { why: known.why.take(), expected_gain: known.expected_gain, ..line },
            None => trials.push((at, line)),
        }
    }
    Ok(trials)
}

/// The beginning of a header. The first member of a header is its format; the first member of a trial is its number.
const BEGINNING: &[u8] = b"{\"format\":";

pub(super) fn is_header(line: &[u8]) -> bool {
    line.starts_with(BEGINNING)
}

/// Checks that the only line of a file, which has no line end, is empty or a header that was cut off in writing.
pub(super) fn check_torn_header(path: &Path, line: &[u8]) -> Result<(), JournalError> {
    match parse_header(path, 1, line) {
        Err(error @ JournalError::Format { .. }) => Err(error),
        Err(error) if !is_header(line) && !BEGINNING.starts_with(line) => Err(error),
        _ => Ok(()),
    }
}

/// Reads a header. It reads the format first, since headers of other versions may look different.
pub(super) fn parse_header(path: &Path, at: usize, line: &[u8]) -> Result<Header, JournalError> {
    #[derive(Deserialize)]
    struct Versioned {
        format: u32,
    }
    let Versioned { format } = parse(path, at, line)?;
    if format != FORMAT {
        return Err(JournalError::Format(path.to_owned(), format));
    }
    parse(path, at, line)
}
