//! A mistake in a spec, with its place in the file and a remedy.

use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A mistake in a spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct SpecError {
    /// The description, a sentence fragment.
    pub message: String,
    /// The file.
    pub path: PathBuf,
    /// The file's text; empty if it could not be read.
    pub text: String,
    /// The bytes of the text that the mistake is about, if there are any.
    pub span: Option<Range<usize>>,
    /// The remedy.
    pub hint: Option<String>,
}

/// A file that was read, kept so that mistakes can point into it.
#[derive(Debug, Clone)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The largest file that is read: far above anything written by hand, and an end for an endless device. A round number.
const LARGEST: u64 = 16 << 20;

/// Returns why a file cannot be read, without the system's error number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(reason, _)| reason).to_lowercase()
}

impl SourceFile {
    pub(super) fn read(path: &Path) -> Result<Self, SpecError> {
        let unreadable = |reason: String, hint: &str| SpecError {
            message: format!("cannot read `{}`: {reason}", path.display()),
            path: path.to_owned(),
            text: String::new(),
            span: None,
            hint: Some(hint.to_owned()),
        };
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
            .map_err(|error| unreadable(reason(&error), "is the path right, and may this user read it?"))?;
        if bytes.len() as u64 > LARGEST {
            return Err(unreadable("it is larger than 16 MiB".to_owned(), "give the path of a text file"));
        }
        Self::decode(path, bytes)
    }

    /// Reads a file whose path is relative to this one; if it cannot be read, the mistake points at the path.
    pub(super) fn read_beside(&self, path: &Path, span: &Range<usize>) -> Result<Self, SpecError> {
        let beside = self.path.parent().unwrap_or(Path::new("")).join(path);
        Self::read(&beside).map_err(|error| match error.span {
            Some(_) => error,
            None => self.error(span.clone(), error.message, "the path is relative to the folder of this file"),
        })
    }

    fn decode(path: &Path, bytes: Vec<u8>) -> Result<Self, SpecError> {
        match String::from_utf8(bytes) {
            Ok(text) => {
                let text = text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned);
                Ok(Self { path: path.to_owned(), text })
            }
            Err(error) => {
                let start = error.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                let source = Self { path: path.to_owned(), text };
                let span = start..start + char::REPLACEMENT_CHARACTER.len_utf8();
                Err(source.error(span, "this byte is not UTF-8 text", "save the file as UTF-8"))
            }
        }
    }

    /// Makes the error for a mistake at a place of this file.
    pub(super) fn error(&self, span: Range<usize>, message: impl Into<String>, hint: impl Into<String>) -> SpecError {
        let (message, path, text) = (message.into(), self.path.clone(), self.text.clone());
        SpecError { message, path, text, span: Some(self.first_line_of(span)), hint: Some(hint.into()) }
    }

    /// Returns the part of a place that lies on its first line, since a caret points into one line.
    fn first_line_of(&self, span: Range<usize>) -> Range<usize> {
        let start = span.start.min(self.text.len());
        let rest = self.text.get(start..).unwrap_or_default();
        let line_end = start + rest.find(['\r', '\n']).unwrap_or(rest.len());
        start..span.end.clamp(start, line_end)
    }

    /// Returns the place of a part of a quoted string, or of the whole string if the place of the part is not known.
    pub(super) fn inside(&self, span: &Range<usize>, value: &str, part: Option<Range<usize>>) -> Range<usize> {
        let place = || {
            let part = part_of(self.text.get(span.clone())?, value, &part?)?;
            Some(span.start + part.start..span.start + part.end)
        };
        place().unwrap_or_else(|| span.clone())
    }
}

/// Returns the bytes of a quoted token in which a part of its value is written; `None` if the token does not spell the value. The
/// token may have escapes, three quotes, or several lines.
fn part_of(token: &str, value: &str, part: &Range<usize>) -> Option<Range<usize>> {
    /// The longest text with escapes that is searched, since the search reads the text again for each of its bytes.
    const LONGEST: usize = 10_000;
    let quotes = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quotes| token.starts_with(quotes))?;
    let (before, through) = (value.get(..part.start)?, value.get(..part.end).filter(|_| !part.is_empty())?);
    let begin = quotes.len();
    if token[begin..].starts_with(value) {
        return Some(begin + part.start..begin + part.end);
    }
    // The token up to a byte, with its quotes closed there, spells a part of the value.
    let spells = |end: usize, wanted: &str| {
        let text = format!("x = {}{quotes}", token.get(..end)?);
        let table: toml::Table = toml::from_str(&text).ok()?;
        (table["x"].as_str()? == wanted).then_some(end)
    };
    let last = token.len().checked_sub(begin).filter(|last| *last <= LONGEST)?;
    let start = (begin..=last).rev().find_map(|end| spells(end, before))?;
    Some(start..(start..=last).find_map(|end| spells(end, through))?)
}

/// Suggests the known name that was most likely meant, or lists all of them.
pub fn suggestion<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    /// The least Jaro-Winkler similarity of a suggested name: a round number.
    const LIKELY: f64 = 0.75;
    let known: Vec<&str> = known.collect();
    let rated = known.iter().map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    let closest = rated.max_by(|(a, _), (b, _)| a.total_cmp(b));
    match closest {
        Some((likeness, candidate)) if likeness >= LIKELY => format!("did you mean `{candidate}`?"),
        _ if known.is_empty() => "there are no names to choose from".to_owned(),
        _ => format!("there is only {}", known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(token: &str, part: &str) -> Option<String> {
        let value: String = toml::from_str::<toml::Table>(&format!("x = {token}")).unwrap()["x"].as_str()?.to_owned();
        let start = value.find(part)?;
        part_of(token, &value, &(start..start + part.len())).map(|range| token[range].to_owned())
    }

    #[test]
    fn parts_are_found_in_every_kind_of_string() {
        for (token, wanted, found) in [
            ("\"a bc d\"", "bc", "bc"),
            ("'a bc d'", "bc", "bc"),
            ("'''a bc d'''", "bc", "bc"),
            ("\"\"\"\na bc d\"\"\"", "bc", "bc"),
            ("\"\"\"\r\na\r\nbc d\"\"\"", "bc", "bc"),
            (r#""\"\u00e4\t\U0001F600 bc""#, "bc", "bc"),
            (r#""\u00e4b""#, "äb", r"\u00e4b"),
            ("\"\"\"a \\\n   bc\"\"\"", "bc", "bc"),
            (r"'C:\bc'", "bc", "bc"),
        ] {
            assert_eq!(part(token, wanted).as_deref(), Some(found), "{token}");
        }
        for (token, value, part) in [("\"abc\"", "abd", 2..3), ("3", "3", 0..1), ("\"abc\"", "abc", 1..1)] {
            assert_eq!(part_of(token, value, &part), None, "another string has no such part");
        }
    }
}
