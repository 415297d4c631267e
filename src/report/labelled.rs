//! Wrapped lines with a label in front.

use super::screen::wrap;

/// The column where the text of a line begins.
pub(super) const INDENT: usize = 11;

/// A text of labelled lines.
pub(super) struct Page {
    text: String,
    width: usize,
}

impl Page {
    /// Makes an empty page whose lines have at most this many columns.
    pub(super) fn new(width: usize) -> Self {
        Self { text: String::new(), width }
    }

    /// Adds a line with its label, wrapped if it is too long.
    pub(super) fn line(&mut self, label: &str, words: &str) {
        let room = self.width.saturating_sub(INDENT).max(20);
        for (at, line) in wrap(words, room).into_iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            let line = format!("{label:<INDENT$}{line}");
            self.add(line.trim_end());
        }
    }

    /// Adds one or more lines unchanged.
    pub(super) fn add(&mut self, lines: &str) {
        self.text += lines;
        self.text.push('\n');
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Adds a line if it has text.
pub(super) fn unless_empty(page: &mut Page, label: &str, words: &str) {
    if !words.is_empty() {
        page.line(label, words);
    }
}

/// Joins the parts that are known.
pub(super) fn listed<T: AsRef<str>>(words: impl IntoIterator<Item = Option<T>>) -> String {
    let known: Vec<T> = words.into_iter().flatten().collect();
    known.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join("; ")
}
