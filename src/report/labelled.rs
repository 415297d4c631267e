//! Wrapped lines with a label in front.

use super::screen::{width, wrap};

/// A text of labelled lines.
pub(super) struct Page {
    text: String,
    /// The column where the text of a line begins.
    indent: usize,
    columns: usize,
}

impl Page {
    /// Makes an empty page whose lines have at most this many columns; texts begin after `indent` columns.
    pub(super) fn new(indent: usize, columns: usize) -> Self {
        Self { text: String::new(), indent, columns }
    }

    /// Adds a line with its label, wrapped if it is too long.
    pub(super) fn line(&mut self, label: &str, words: &str) {
        self.text += &hanging(label, words, self.indent, self.columns);
    }

    /// Adds lines of which only the first has the label.
    pub(super) fn lines<T: AsRef<str>>(&mut self, label: &str, lines: impl IntoIterator<Item = T>) {
        for (at, line) in lines.into_iter().enumerate() {
            self.line(if at == 0 { label } else { "" }, line.as_ref());
        }
    }

    /// Adds a line if it has text.
    pub(super) fn unless_empty(&mut self, label: &str, words: &str) {
        if !words.is_empty() {
            self.line(label, words);
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

/// Joins the parts that are known.
pub(super) fn listed<T: AsRef<str>>(words: impl IntoIterator<Item = Option<T>>) -> String {
    let known: Vec<T> = words.into_iter().flatten().collect();
    known.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join("; ")
}

/// Wraps text between words behind a label; further lines are indented below the first.
fn hanging(label: &str, text: &str, indent: usize, columns: usize) -> String {
    let room = columns.saturating_sub(indent).max(20);
    let mut shown = String::new();
    for (at, line) in text.lines().flat_map(|line| broken(line, room)).enumerate() {
        let label = if at == 0 { label } else { "" };
        shown.push_str(format!("{label:<indent$}{line}").trim_end());
        shown.push('\n');
    }
    shown
}

/// Breaks a line into pieces of at most this many columns. Text after `- ` is indented.
fn broken(line: &str, columns: usize) -> Vec<String> {
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    let (mark, text) = line.split_at(if line.starts_with("- ") { 2 } else { 0 });
    let pieces = wrap(text, columns - mark.len()).into_iter().enumerate();
    pieces.map(|(at, piece)| if at == 0 { format!("{mark}{piece}") } else { " ".repeat(mark.len()) + &piece }).collect()
}

/// Lays entries out side by side, without breaking any of them.
pub(super) fn pairs(entries: &[String], columns: usize) -> String {
    let mut lines = vec![String::new()];
    for entry in entries {
        let used = lines.last().map_or(0, |line| width(line));
        if used > 0 && used + 2 + width(entry) > columns {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(entry);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_long_words_are_cut() {
        assert_eq!(hanging("a", "one two three four five", 2, 22), "a one two three four\n  five\n");
        assert_eq!(broken("- alpha beta gamma", 12), ["- alpha beta", "  gamma"]);
        assert_eq!(broken("abcdefghijklmnopqrs", 8), ["abcdefgh", "ijklmnop", "qrs"]);
        assert_eq!(broken("", 10), [""]);
        for line in broken("- a very long word: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa and then more", 20) {
            assert!(width(&line) <= 20, "{line}");
        }
    }

    #[test]
    fn entries_stay_whole() {
        let entries = ["data wait 40 %", "forward 30 %", "backward 30 %"].map(str::to_owned);
        assert_eq!(pairs(&entries, 30), "data wait 40 %  forward 30 %\nbackward 30 %");
    }
}
