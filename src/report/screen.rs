//! The screen of a report: its width in columns, its colours, and wrapped lines with a label in front.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A terminal, or another target of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// The width in columns.
    pub columns: usize,
    /// True if words are coloured. A colour only repeats the meaning of its word.
    pub colours: bool,
    /// True if a report shows all details.
    pub is_verbose: bool,
}

impl From<u16> for Screen {
    /// Makes a screen without colours.
    fn from(columns: u16) -> Self {
        Self { columns: usize::from(columns), colours: false, is_verbose: false }
    }
}

/// The meaning of a word, which its colour repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// No special meaning.
    Plain,
    /// A winner or a gain.
    Good,
    /// A tie with the winner, or a label for orientation.
    Note,
    /// A doubtful result.
    Doubtful,
    /// A failure.
    Bad,
    /// A minor detail.
    Faint,
}

impl Tone {
    /// Returns the escape sequence that starts the tone (ECMA-48, 8.3.117), in the terminal's own colours.
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[1;32m",
            Self::Note => "\x1b[36m",
            Self::Doubtful => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Faint => "\x1b[2m",
        }
    }
}

impl Screen {
    /// Returns the text in a tone, if the screen has colours.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = tone.code();
        let is_painted = self.colours && !code.is_empty() && !text.is_empty();
        if is_painted { format!("{code}{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Lays out lines with a label of ten columns, as written by [`verdict`](super::verdict). Longer lines continue below the text
    /// of the first line. Labels that state a result are coloured.
    pub fn lay_out(self, text: &str) -> String {
        const LABEL: usize = 10;
        let lines = text.lines().map(|line| {
            let (label, rest) = split_at_width(line, LABEL);
            match label.ends_with(' ') && !rest.starts_with(' ') {
                true => self.lay_out_at(LABEL, line, tone_of(label)),
                false => wrap(line, self.columns).join("\n"),
            }
        });
        lines.collect::<Vec<String>>().join("\n")
    }

    /// Lays out a line that begins with a label of `label` columns in a tone. Wrapped lines are indented.
    pub(super) fn lay_out_at(self, label: usize, line: &str, tone: Tone) -> String {
        let (name, rest) = split_at_width(line, label);
        let parts = wrap(rest, self.columns.saturating_sub(label));
        let name = self.paint(tone, name);
        format!("{name}{}", parts.join(&format!("\n{}", " ".repeat(label))))
    }
}

fn tone_of(label: &str) -> Tone {
    match label.trim_end() {
        "best" | "speedup" | "better" => Tone::Good,
        "tied" => Tone::Note,
        "noise" | "unstable" | "numerics" | "rate" => Tone::Doubtful,
        "nothing" => Tone::Bad,
        "saved" | "probes" | "tried" | "left out" | "results" => Tone::Faint,
        _ => Tone::Plain,
    }
}

/// Returns the columns that a text takes; wide characters take two (UAX #11).
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Splits a text after at most this many columns.
fn split_at_width(text: &str, columns: usize) -> (&str, &str) {
    let mut used = 0;
    let end = text.char_indices().find(|(_, sign)| {
        used += sign.width().unwrap_or(0);
        used > columns
    });
    text.split_at(end.map_or(text.len(), |(at, _)| at))
}

/// Shortens a text to this many columns. Its start and end are kept, since values mostly differ there.
pub fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let (start, rest) = split_at_width(text, room.div_ceil(2));
    let left = room - width(start);
    let mut used = 0;
    let from = rest.char_indices().rev().take_while(|(_, sign)| {
        used += sign.width().unwrap_or(0);
        used <= left
    });
    let from = from.last().map_or(rest.len(), |(at, _)| at);
    format!("{start}…{}", &rest[from..])
}

/// The most columns of a text that fits behind its label on a screen of 100 columns.
const FITS: usize = 90;

/// Appends each part that still fits into the line of the text. Each part begins with its separator.
pub(super) fn fitting(first: impl Into<String>, parts: impl IntoIterator<Item = String>) -> String {
    let joined = |line: String, part: String| if width(&line) + width(&part) <= FITS { line + &part } else { line };
    parts.into_iter().fold(first.into(), joined)
}

/// Returns true if a text fits behind its label on a screen of 100 columns.
pub(super) fn fits(text: &str) -> bool {
    width(text) <= FITS
}

/// Breaks a text at spaces into lines of at most this many columns, but not within `± 1.2 %`. Longer words are broken anywhere.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    /// A space at which lines are not broken.
    const GLUE: &str = "\u{a0}";
    let glued = text.replace("± ", &format!("±{GLUE}")).replace(" %", &format!("{GLUE}%"));
    let lines = wrap_at_blanks(&glued, columns.max(8));
    lines.into_iter().map(|line| line.replace(GLUE, " ")).collect()
}

fn wrap_at_blanks(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let gap = usize::from(!line.is_empty());
        if !line.is_empty() && width(&line) + gap + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        let mut rest = word;
        while width(rest) > columns {
            let (start, end) = split_at_width(rest, columns);
            lines.push(start.to_owned());
            rest = end;
        }
        line.push_str(rest);
    }
    lines.push(line);
    lines
}

/// A text of labelled lines.
pub struct Page {
    text: String,
    /// The column where the text of a line begins.
    indent: usize,
    columns: usize,
}

impl Page {
    /// Makes an empty page whose lines have at most this many columns; texts begin after `indent` columns.
    pub fn new(indent: usize, columns: usize) -> Self {
        Self { text: String::new(), indent, columns }
    }

    /// Adds a line with its label, wrapped if it is too long.
    pub fn line(&mut self, label: &str, words: &str) {
        self.text += &hanging(label, words, self.indent, self.columns);
    }

    /// Adds lines; only the first line gets the label.
    pub fn lines<T: AsRef<str>>(&mut self, label: &str, lines: impl IntoIterator<Item = T>) {
        for (at, line) in lines.into_iter().enumerate() {
            self.line(if at == 0 { label } else { "" }, line.as_ref());
        }
    }

    /// Adds a line if it has text.
    pub fn unless_empty(&mut self, label: &str, words: &str) {
        if !words.is_empty() {
            self.line(label, words);
        }
    }

    /// Adds one or more lines unchanged.
    pub fn add(&mut self, lines: &str) {
        self.text += lines;
        self.text.push('\n');
    }

    /// Adds the lines of another page.
    pub fn append(&mut self, other: Self) {
        self.text += &other.text;
    }

    /// Returns the lines, each with a line end.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Puts a label before the first text, and spaces of the same width before each further text.
pub(super) fn labelled(label: &str, texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let label = |at: usize| if at == 0 { label } else { "" };
    texts.into_iter().enumerate().map(|(at, text)| format!("{:<10}{text}", label(at))).collect()
}

/// Joins the known parts with semicolons.
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

/// Breaks a line into pieces of at most this many columns. Further lines of a list item (`- `) are indented.
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
    fn wide_characters_take_two_columns() {
        assert_eq!(width("学習率"), 6);
        assert_eq!(shortened("学習率の設定", 7), "学…設定");
        assert_eq!(width(&shortened("学習率の設定", 7)), 7);
        assert_eq!(shortened("plain", 5), "plain");
        assert_eq!(shortened("/data/imagenet/train-00001.tar", 14), "/data/i…01.tar");
    }

    #[test]
    fn lines_are_broken_at_blanks_and_words_that_are_too_long_anywhere() {
        assert_eq!(wrap("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrap("0123456789abc x", 10), ["0123456789", "abc x"]);
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("fast ± 1.2 %)", 10), ["fast", "± 1.2 %)"]);
    }

    #[test]
    fn parts_that_do_not_fit_into_a_line_are_left_out() {
        let part = |columns: usize| format!("; {}", "x".repeat(columns));
        assert_eq!(fitting("first", [part(3), part(90), part(1)]), "first; xxx; x");
        assert!(fits(&"x".repeat(90)) && !fits(&"x".repeat(91)));
    }

    #[test]
    fn labels_stay_and_texts_go_on_below_themselves() {
        let screen = Screen { columns: 30, colours: false, is_verbose: false };
        let text = "speedup   2.40x (2.18 to 2.65) faster than it was\nno label here";
        assert_eq!(screen.lay_out(text), "speedup   2.40x (2.18 to 2.65)\n          faster than it was\nno label here");
        let coloured = Screen { colours: true, ..screen }.lay_out("best      x=1");
        assert_eq!(coloured, "\x1b[1;32mbest      \x1b[0mx=1");
    }

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
