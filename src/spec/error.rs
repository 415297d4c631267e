//! A mistake in a spec: what it is, where it is, and what to do about it.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A mistake in a spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct SpecError {
    /// What is wrong, in one sentence fragment.
    pub message: String,
    /// The file.
    pub path: PathBuf,
    /// The file's text; empty where it could not be read.
    pub text: String,
    /// The bytes of the text that it is about, where there are such.
    pub span: Option<Range<usize>>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A file that was read, so that mistakes can point into it.
#[derive(Debug, Clone)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl SourceFile {
    pub(super) fn read(path: &Path) -> Result<Self, SpecError> {
        let text = std::fs::read(path)
            .map_err(|error| (error.to_string(), "is the path right, and may this user read it?"))
            .and_then(|bytes| {
                String::from_utf8(bytes).map_err(|_| ("it is not UTF-8".to_owned(), "save it as UTF-8 text"))
            });
        match text {
            Ok(text) => Ok(Self { path: path.to_owned(), text }),
            Err((reason, hint)) => Err(SpecError {
                message: format!("cannot read {}: {reason}", path.display()),
                path: path.to_owned(),
                text: String::new(),
                span: None,
                hint: Some(hint.to_owned()),
            }),
        }
    }

    pub(super) fn error(&self, span: Range<usize>, message: impl Into<String>) -> SpecError {
        SpecError {
            message: message.into(),
            path: self.path.clone(),
            text: self.text.clone(),
            span: Some(span),
            hint: None,
        }
    }

    /// A mistake that the TOML reader found.
    pub(super) fn toml_error(&self, error: &toml::de::Error) -> SpecError {
        let message = error.message().trim_end_matches('.').to_owned();
        let hint = unknown_name(&message).map(|(name, known)| suggestion(name, known.iter().copied()));
        let missing = message.strip_prefix("missing field ").map(|field| format!("add {field}"));
        let span = error.span().map(|span| self.visible(span));
        SpecError { span, hint: hint.or(missing), ..self.error(0..0, message) }
    }

    /// A place that can be pointed at: not empty, and not a table's whole content.
    fn visible(&self, span: Range<usize>) -> Range<usize> {
        let start = span.start.min(self.text.len());
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |end| start + end);
        start..span.end.clamp(start, line_end.max(start))
    }

    /// The place of a part of a quoted text, or of all of it where it was written with escapes.
    pub(super) fn inside(&self, span: &Range<usize>, value: &str, part: Option<Range<usize>>) -> Range<usize> {
        let start = span.start + 1;
        let is_plain = self.text.get(start..start + value.len()) == Some(value);
        match part {
            Some(part) if is_plain && part.end <= value.len() && part.start < part.end => {
                start + part.start..start + part.end
            }
            _ => span.clone(),
        }
    }
}

/// The name and the known names in serde's message about an unknown field or variant.
fn unknown_name(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))?;
    let mut names = rest.split('`').skip(1).step_by(2);
    let name = names.next()?;
    Some((name, names.collect()))
}

/// The known name that was most likely meant, or all of them.
pub(super) fn suggestion<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    const LIKELY: f64 = 0.75;
    let known: Vec<&str> = known.collect();
    let closest = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match closest {
        Some((likeness, candidate)) if likeness >= LIKELY => format!("did you mean `{candidate}`?"),
        _ if known.is_empty() => "there are no names to choose from".to_owned(),
        _ => format!("there is {}", known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    }
}
