//! A mistake in a spec, with its place in the file and a remedy.

use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::CharIndices;

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

/// The largest file that is read: a round number, far above anything written by hand. It also bounds the reading of an endless
/// device.
const LARGEST: u64 = 16 << 20;

/// Returns why a file cannot be read, without the system's error number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(reason, _)| reason).to_lowercase()
}

impl SourceFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is too large, or is not UTF-8.
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
        SpecError {
            message: message.into(),
            path: self.path.clone(),
            text: self.text.clone(),
            span: Some(self.first_line_of(span)),
            hint: Some(hint.into()),
        }
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
    let starts = starts(token, value)?;
    // The range ends after the last character, so that an escape or a line break after it is not included.
    let last = part.end.checked_sub(1).filter(|last| *last >= part.start)?;
    Some(starts.get(part.start)?.start..starts.get(last)?.end)
}

/// Returns, for each byte of the value, the bytes of the token in which its character is written.
fn starts(token: &str, value: &str) -> Option<Vec<Range<usize>>> {
    let quotes = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quotes| token.starts_with(quotes))?;
    let mut rest = token.char_indices();
    rest.by_ref().take(quotes.len()).for_each(drop);
    if quotes.len() == 3 {
        let body = &token[quotes.len()..];
        let newline = ["\r\n", "\n"].into_iter().find(|newline| body.starts_with(newline)).map_or(0, str::len);
        rest.by_ref().take(newline).for_each(drop);
    }
    let mut found = Vec::with_capacity(value.len());
    for character in value.chars() {
        let place = written(&mut rest, character, quotes.starts_with('"'))?;
        found.extend(std::iter::repeat_n(place, character.len_utf8()));
    }
    Some(found)
}

/// Reads one character of the value from the token.
fn written(rest: &mut CharIndices<'_>, character: char, has_escapes: bool) -> Option<Range<usize>> {
    loop {
        let (start, first) = rest.next()?;
        if first == '\r' && character == '\n' {
            continue;
        }
        if first == '\\' && has_escapes {
            let more = match rest.next()?.1 {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                blank if blank.is_whitespace() => {
                    skip_blanks(rest);
                    continue;
                }
                _ => 0,
            };
            rest.by_ref().take(more).for_each(drop);
            return Some(start..rest.offset());
        }
        return (first == character).then(|| start..rest.offset());
    }
}

/// Skips the white space after a backslash at the end of a line. It belongs to the escaped line break.
fn skip_blanks(rest: &mut CharIndices<'_>) {
    while rest.clone().next().is_some_and(|(_, next)| next.is_whitespace()) {
        rest.next();
    }
}

/// Suggests the known name that was most likely meant, or lists all of them.
pub fn suggestion<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    /// The least Jaro-Winkler similarity of a suggested name: a round number.
    const LIKELY: f64 = 0.75;
    let known: Vec<&str> = known.collect();
    let closest = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
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
