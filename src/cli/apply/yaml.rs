//! Finds the values of a YAML file.

use std::collections::BTreeSet;
use std::ops::Range;

use gputune::model::Value;
use gputune::report::emit::{is_plain_yaml, yaml_key, yaml_scalar};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::form::{Old, is_answer, is_precision_word};
use super::{LIST, Language, Place, TABLE, Text};

pub(super) const LANGUAGE: Language =
    Language { name: "YAML", endings: &["yaml", "yml"], places, read, show, is_same, add };

/// A table or list that the parser has begun and not ended.
struct Open {
    is_table: bool,
    /// The key in a table whose value comes next, and the bytes of the key. Always `None` in a list.
    key: Option<(String, Range<usize>)>,
    /// The number of values before the next value of a list.
    count: usize,
    /// The index of its own place in `found`; `None` for the whole document.
    place: Option<usize>,
}

struct Reader<'t> {
    text: &'t str,
    /// The byte position of each character, and of the end.
    bytes: Vec<usize>,
    open: Vec<Open>,
    path: Vec<String>,
    found: Vec<Place>,
    /// For each place, its index in `found` and its anchor; `used` holds the anchors that other values refer to.
    anchors: Vec<(usize, usize)>,
    used: BTreeSet<usize>,
}

const NO_TABLE: &str = "it is no table of settings";

fn places(text: &str) -> Result<Vec<Place>, String> {
    let bytes = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let (open, path, found, anchors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut reader = Reader { text, bytes, open, path, found, anchors, used: BTreeSet::new() };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| format!("line {}: {}", error.marker().line(), error.info()))?;
        let is_root = reader.open.is_empty();
        match event {
            Event::SequenceStart(..) if is_root => return Err(NO_TABLE.to_owned()),
            Event::Scalar(ref value, ..) if is_root && !["", "~"].contains(&value.as_ref()) => {
                return Err(NO_TABLE.to_owned());
            }
            Event::DocumentStart(_) => documents += 1,
            Event::MappingStart(anchor, _) => reader.begin(true, anchor, &span),
            Event::SequenceStart(anchor, _) => reader.begin(false, anchor, &span),
            Event::MappingEnd | Event::SequenceEnd => reader.end(&span),
            Event::Scalar(value, style, anchor, _) => reader.scalar(&value, style, anchor, &span),
            Event::Alias(anchor) => {
                reader.used.insert(anchor);
                reader.scalar("*", ScalarStyle::Plain, 0, &span);
            }
            _ => {}
        }
    }
    if documents > 1 {
        return Err("it has several documents".to_owned());
    }
    for (place, anchor) in &reader.anchors {
        if reader.used.contains(anchor) && reader.found[*place].obstacle.is_none() {
            reader.found[*place].obstacle = Some("has an anchor, so other settings that use it would also change");
        }
    }
    reader.found.sort_by_key(|place| place.key.start);
    Ok(reader.found)
}

impl Reader<'_> {
    fn range(&self, span: &Span) -> Range<usize> {
        let byte = |index: usize| self.bytes.get(index).copied().unwrap_or(self.text.len());
        byte(span.start.index())..byte(span.end.index())
    }

    /// Returns true if a key comes next.
    fn is_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.is_table && open.key.is_none())
    }

    /// Adds the next value's key to the path. Returns the key's bytes: `0..0` in a list, `None` for the whole document.
    fn enter(&mut self) -> Option<Range<usize>> {
        let open = self.open.last_mut()?;
        if open.is_table {
            let (name, range) = open.key.take()?;
            self.path.push(name);
            return Some(range);
        }
        self.path.push(open.count.to_string());
        open.count += 1;
        Some(0..0)
    }

    fn begin(&mut self, is_table: bool, anchor: usize, span: &Span) {
        let range = self.range(span);
        if self.is_key() {
            // This key is itself a table or a list, and no path can name it.
            if let Some(open) = self.open.last_mut() {
                open.key = Some(("?".to_owned(), range.clone()));
            }
        }
        let place = self.enter().map(|key| {
            let key = if key == (0..0) { range.clone() } else { key };
            let obstacle = Some(if is_table { TABLE } else { LIST });
            self.found.push(Place { path: self.path.clone(), span: range, key, obstacle });
            self.anchors.push((self.found.len() - 1, anchor));
            self.found.len() - 1
        });
        self.open.push(Open { is_table, key: None, count: 0, place });
    }

    fn end(&mut self, span: &Span) {
        let end = self.range(span).end;
        let Some(open) = self.open.pop() else { return };
        if let Some(place) = open.place.and_then(|place| self.found.get_mut(place)) {
            place.span.end = end.max(place.span.start);
            self.path.pop();
        }
    }

    fn scalar(&mut self, value: &str, style: ScalarStyle, anchor: usize, span: &Span) {
        let mut range = self.range(span);
        if self.is_key() {
            if let Some(open) = self.open.last_mut() {
                open.key = Some((value.to_owned(), range));
            }
            return;
        }
        let Some(key) = self.enter() else { return };
        let key = if key == (0..0) { range.clone() } else { key };
        if matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted) {
            // The parser's range of a quoted string goes on to the end of the line, with any comment.
            range.end = quotes_end(self.text, range.start).unwrap_or(range.end);
        }
        if range.is_empty() {
            // The value is empty: write it after the colon.
            let colon = self.text[key.end..].find(':').map_or(key.end, |at| key.end + at + 1);
            range = colon..colon;
        }
        let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let obstacle = is_block.then_some("is a text of several lines");
        self.found.push(Place { path: self.path.clone(), span: range, key, obstacle });
        self.anchors.push((self.found.len() - 1, anchor));
        self.path.pop();
    }
}

/// Words for null (YAML 1.2, 10.3.2 Core Schema).
const NOTHING: &[&str] = &["", "~", "null", "Null", "NULL"];

fn read(old: &str) -> Old {
    let old = old.trim();
    match unquoted(old) {
        Some(text) => Old::Scalar(Value::Text(text)),
        None if NOTHING.contains(&old) => Old::Null,
        None if old.starts_with(['!', '&', '*', '"', '\'']) => Old::Other,
        // `True`, and words of YAML 1.1 such as `on`, are read as strings: the new value keeps their style.
        None => Old::Scalar(whole(old).map_or_else(|| Value::parse(old), Value::Int)),
    }
}

/// Returns a whole number that YAML writes with underscores or in another base. Without a digit at its start, the word is
/// a string, such as `_12`.
fn whole(old: &str) -> Option<i64> {
    if !old.strip_prefix(['+', '-']).unwrap_or(old).starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let digits = old.replace('_', "");
    let (base, digits) = match digits.get(..2)? {
        "0x" => (16, &digits[2..]),
        "0o" => (8, &digits[2..]),
        _ => (10, digits.as_str()),
    };
    i64::from_str_radix(digits, base).ok()
}

fn show(value: &Value, old: &str) -> String {
    match value {
        Value::Text(text) if old.starts_with('\'') && !text.contains(['\'', '\n']) => format!("'{text}'"),
        Value::Text(_) if old.starts_with(['"', '\'']) => yaml_scalar(value),
        // No quotes: a word for yes or no in place of another, Lightning's name of a precision, a plain string.
        Value::Text(text) if is_answer(old.trim()) && is_answer(text) => text.clone(),
        Value::Text(text) if is_precision_word(text) && !old.is_empty() => text.clone(),
        Value::Text(text) if !old.is_empty() && is_plain_yaml(text) => text.clone(),
        value => yaml_scalar(value),
    }
}

fn is_same(old: &str, value: &Value) -> bool {
    let old = old.trim();
    match value {
        Value::Text(text) => unquoted(old).map_or_else(
            || old == text && (is_plain_yaml(old) || is_answer(old) || is_precision_word(old)),
            |old| old == *text,
        ),
        value => old == yaml_scalar(value) || Value::parse(old) == *value,
    }
}

/// Returns the end of the quoted string that begins here.
fn quotes_end(text: &str, start: usize) -> Option<usize> {
    let rest = text.get(start..)?;
    let quote = rest.chars().next()?;
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' if quote == '"' => {
                characters.next();
            }
            // In single quotes, a doubled quote stands for one quote.
            c if c == quote && quote == '\'' && characters.peek().is_some_and(|(_, next)| *next == quote) => {
                characters.next();
            }
            c if c == quote => return Some(start + at + 1),
            _ => {}
        }
    }
    None
}

/// Returns the string inside the quotes; `None` if `old` has no quotes.
fn unquoted(old: &str) -> Option<String> {
    match old.chars().next()? {
        '"' => serde_json::from_str(old).ok(),
        '\'' => Some(old.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'")),
        _ => None,
    }
}

fn add(text: &Text<'_>, own: Option<&Place>, path: &[String], (key, value): (&str, &Value)) -> Option<(usize, String)> {
    let entry = format!("{}: {}", yaml_key(key), show(value, ""));
    let flow = match own {
        Some(own) => text.of(own).starts_with('{').then_some(own.span.start),
        None => text.text.trim_start().starts_with('{').then(|| text.text.find('{')).flatten(),
    };
    if let Some(start) = flow {
        let separator = if text.children(path).next().is_some() { ", " } else { "" };
        return Some((start + 1, format!("{entry}{separator}")));
    }
    let line_break = text.line_break();
    // In the first line of a list item, blanks replace the hyphen.
    let indent = |at: usize| " ".repeat(text.text[text.line_start(at)..at].chars().count());
    // Insert after a setting of one line: the next line cannot be a part of that setting.
    let has_one_line = |place: &&Place| place.obstacle.is_none() && !text.of(place).contains('\n');
    if let Some(last) = text.children(path).filter(has_one_line).last() {
        let (at, before) = text.after_line(last);
        return Some((at, format!("{before}{}{entry}{line_break}", indent(last.key.start))));
    }
    if let Some(first) = text.children(path).next() {
        return Some((first.key.start, format!("{entry}{line_break}{}", indent(first.key.start))));
    }
    let end = if text.text.is_empty() || text.text.ends_with('\n') { "" } else { line_break };
    path.is_empty().then(|| (text.text.len(), format!("{end}{entry}{line_break}")))
}
