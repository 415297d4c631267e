//! Explains text that is not TOML: what is wrong with it, and what to do.

use toml::Spanned;
use toml::de::DeTable;

use super::error::{SourceFile, SpecError};

/// The messages of the TOML reader, what they mean, and what to do.
const KNOWN: &[(&str, &str, &str)] = &[
    ("string values must be quoted", "a text must be in quotes", "write \"...\" around it"),
    (
        "invalid basic string",
        "the text is not closed",
        "close it with \"; a text of several lines needs \"\"\" around it",
    ),
    ("invalid multi-line basic string", "the text is not closed", "close it with \"\"\""),
    (
        "invalid literal string",
        "the text is not closed",
        "close it with '; a text of several lines needs ''' around it",
    ),
    ("invalid multi-line literal string", "the text is not closed", "close it with '''"),
    (
        "missing escaped value",
        "a backslash starts an escape, and this is none",
        "write \\\\ for a backslash, or put the text in single quotes, which leave backslashes alone",
    ),
    ("unicode", "a backslash starts an escape, and this is none", "write \\\\ for a backslash, or use single quotes"),
    (
        "missing comma between array elements",
        "a comma or ] is missing in front of this",
        "put a comma there, or close the list with ]",
    ),
    ("missing comma between key-value pairs", "a comma is missing in front of this", "put a comma between two keys"),
    ("unclosed array table", "the header is not closed", "write [[rules]]"),
    ("unclosed array", "the list is not closed", "close it with ]"),
    ("unclosed inline table", "the table is not closed", "close it with }"),
    ("unclosed table", "the header is not closed", "close it with ]"),
    ("extra comma", "there is a comma too many", "take it out"),
    ("extra `=`", "there is a = too many", "write == only inside the quotes of a condition"),
    ("key with no value", "there is no value behind this key", "write key = value"),
    ("missing value", "there is no value behind the =", "write key = value"),
    ("missing assignment", "there is no = behind this key", "write key = value"),
    ("missing key", "there is no key in front of the =", "write key = value"),
    ("recursi", "the lists or tables lie too deep in each other", "no part of a spec lies that deep"),
    ("carriage return", "a carriage return without a line break", "save the file with ordinary line ends"),
];

/// Reads a file as TOML.
///
/// # Errors
/// It is not TOML. Of several mistakes, a text that is not closed is reported first, since it causes others.
pub(super) fn parse(source: &SourceFile) -> Result<Spanned<DeTable<'_>>, SpecError> {
    let (document, errors) = DeTable::parse_recoverable(&source.text);
    let is_open_text = |error: &&toml::de::Error| error.message().contains("string, expected");
    match errors.iter().find(is_open_text).or(errors.first()) {
        Some(error) => Err(mistake(source, error)),
        None => Ok(document),
    }
}

fn mistake(source: &SourceFile, error: &toml::de::Error) -> SpecError {
    let (span, message) = (error.span().unwrap_or(0..0), error.message());
    let text = source.text.get(span.clone()).unwrap_or_default();
    if message.starts_with("duplicate key") {
        return source.error(span, format!("`{text}` is there twice"), "take one of them out, or rename it");
    }
    if message.starts_with("string values must be quoted") && text.is_empty() {
        return source.error(span, "there is no value behind the =", "write key = value");
    }
    match KNOWN.iter().find(|(part, _, _)| message.contains(part)) {
        Some((_, message, hint)) => source.error(span, *message, *hint),
        None => source.error(span, message, "the file must be TOML, see https://toml.io"),
    }
}
