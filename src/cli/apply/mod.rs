//! Writes settings into an existing file. Only the values change.
//!
//! A reader for each language finds the values, and new values replace them in place. Comments, order, indentation, line ends and
//! everything else stay byte for byte.

mod form;
mod json;
mod toml;
mod yaml;

use std::ops::Range;
use std::path::Path;

use gputune::model::Value;

use form::Old;

/// A language of configuration files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Language {
    name: &'static str,
    /// The extensions of its files, in lower case and without a dot.
    endings: &'static [&'static str],
    /// Finds the values of a file's text; the error says why the text is invalid.
    places: fn(&str) -> Result<Vec<Place>, String>,
    /// Reads the text of a value.
    read: fn(&str) -> Old,
    /// Formats a value in the language, in the style of the value's present text.
    show: fn(&Value, &str) -> String,
    /// Returns true if the present text means the same value.
    is_same: fn(&str, &Value) -> bool,
    /// Adds a new setting to a table.
    add: Add,
}

/// Takes the file, the table's place and path, a key and its value. Returns a position and the text to insert there.
type Add = fn(&Text<'_>, Option<&Place>, &[String], (&str, &Value)) -> Option<(usize, String)>;

const LANGUAGES: &[Language] = &[toml::LANGUAGE, yaml::LANGUAGE, json::LANGUAGE];

/// A value in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// The keys that lead to the value; the keys of a list are numbers.
    path: Vec<String>,
    /// The bytes of the value.
    span: Range<usize>,
    /// The bytes of its key.
    key: Range<usize>,
    /// The reason why the value cannot be set, if any, such as [`TABLE`]. Messages put it after the value's path.
    obstacle: Option<&'static str>,
}

const TABLE: &str = "is a table and no setting";
const LIST: &str = "is a list and no setting";

impl Place {
    fn dotted(&self) -> String {
        self.path.join(".")
    }
}

/// The text of a file, with the places of its values.
struct Text<'t> {
    text: &'t str,
    places: &'t [Place],
}

impl Text<'_> {
    /// The line break that most lines have.
    fn line_break(&self) -> &'static str {
        let windows = self.text.matches("\r\n").count();
        if windows * 2 > self.text.matches('\n').count() { "\r\n" } else { "\n" }
    }

    /// The values directly in a table.
    fn children<'s>(&'s self, table: &'s [String]) -> impl Iterator<Item = &'s Place> {
        self.places.iter().filter(move |place| place.path.len() == table.len() + 1 && place.path.starts_with(table))
    }

    /// Returns the position after the line of a value, and the line break to insert first if the file ends without it.
    fn after_line(&self, place: &Place) -> (usize, &'static str) {
        match self.text[place.span.end..].find('\n') {
            Some(end) => (place.span.end + end + 1, ""),
            None => (self.text.len(), self.line_break()),
        }
    }

    /// The text of a value.
    fn of(&self, place: &Place) -> &str {
        &self.text[place.span.clone()]
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    /// Returns the white space before a position in its line; empty if other characters precede the position.
    fn indent(&self, at: usize) -> &str {
        let indent = &self.text[self.line_start(at)..at];
        if indent.trim().is_empty() { indent } else { "" }
    }
}

/// A setting, and its place in the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) value: Value,
    /// The keys that lead to the place, joined by dots. If absent, gputune searches for the parameter's name.
    pub(super) path: Option<String>,
    /// The possible settings of the parameter, if known.
    pub(super) among: Vec<Value>,
}

/// Why a file cannot be changed, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) hint: String,
}

impl Refusal {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl Language {
    /// Returns the language of a file, by the ending of its name.
    pub(super) fn of(path: &Path) -> Result<&'static Self, Refusal> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("").to_ascii_lowercase();
        LANGUAGES.iter().find(|language| language.endings.contains(&ending.as_str())).ok_or_else(|| {
            let known: Vec<_> = LANGUAGES.iter().flat_map(|l| l.endings).map(|ending| format!(".{ending}")).collect();
            let message = format!("{} is of no language that can be written", path.display());
            Refusal::new(message, format!("its name has to end in {}", known.join(", ")))
        })
    }

    /// Returns the text with the changes made. `adds` allows settings that the file does not have.
    pub(super) fn edited(&self, whole: &str, changes: &[Change], adds: bool) -> Result<String, Refusal> {
        let text = whole.strip_prefix('\u{feff}').unwrap_or(whole);
        let mark = &whole[..whole.len() - text.len()];
        let hint = || format!("fix the file first: it must be valid {}", self.name);
        let places = (self.places)(text).map_err(|error| Refusal::new(error, hint()))?;
        let parsed = Text { text, places: &places };
        let mut splices: Vec<Splice> = Vec::new();
        let (mut written, mut unknown): (Vec<Change>, Vec<&Change>) = (Vec::new(), Vec::new());
        let mut taken: Vec<&Place> = Vec::new();
        for change in changes {
            match find(&places, change)? {
                Some(place) => {
                    if taken.contains(&place) {
                        let message = format!("two parameters would be written to `{}`", place.dotted());
                        return Err(Refusal::new(message, "leave one out with --skip NAME"));
                    }
                    taken.push(place);
                    if let Some((change, splice)) = self.replaced(text, place, change)? {
                        splices.push(splice);
                        written.push(change);
                    }
                }
                None if adds => {
                    splices.push(self.added(&parsed, change)?);
                    written.push(change.clone());
                }
                None => unknown.push(change),
            }
        }
        if !unknown.is_empty() {
            return Err(unknown_keys(&unknown, &places));
        }
        let edited = spliced(text, splices);
        self.check(&edited, &written)?;
        Ok(format!("{mark}{edited}"))
    }

    /// Returns a change in the format of the present value, with its splice; `None` if the file already has the value.
    fn replaced(&self, text: &str, place: &Place, change: &Change) -> Result<Option<(Change, Splice)>, Refusal> {
        if let Some(obstacle) = place.obstacle {
            let message = format!("`{}` {obstacle}", place.dotted());
            return Err(Refusal::new(message, format!("name another place with --map {}=PATH", change.name)));
        }
        let old = &text[place.span.clone()];
        if (self.is_same)(old, &change.value) {
            return Ok(None);
        }
        let read = (self.read)(old);
        let value = form::in_form(change, &read, &place.path).map_err(|why| {
            let (name, value, at) = (&change.name, &change.value, place.dotted());
            let old = shown(old);
            let message = format!("`{at}` is {old} in the file, and {name} = {value} does not fit its format: {why}");
            Refusal::new(message, format!("write it by hand, and leave it out here with --skip {name}"))
        })?;
        if Old::Scalar(value.clone()) == read || (self.is_same)(old, &value) {
            return Ok(None);
        }
        let gap = if place.span.is_empty() { " " } else { "" };
        let splice = (place.span.clone(), format!("{gap}{}", (self.show)(&value, old)));
        Ok(Some((Change { value, ..change.clone() }, splice)))
    }

    /// Returns the splice that adds a setting missing from the file.
    fn added(&self, parsed: &Text<'_>, change: &Change) -> Result<Splice, Refusal> {
        let path = change.path.as_deref().unwrap_or(&change.name);
        let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
        let table: Vec<String> = table.split('.').filter(|key| !key.is_empty()).map(str::to_owned).collect();
        let own = parsed.places.iter().find(|place| place.path == table && !table.is_empty());
        let has_table = table.is_empty() || own.is_some_and(|own| own.obstacle == Some(TABLE));
        let added = has_table.then(|| (self.add)(parsed, own, &table, (key, &change.value))).flatten();
        let (at, line) = added.ok_or_else(|| {
            let message = format!("there is no table `{}` to add `{key}` to", table.join("."));
            Refusal::new(message, "write the table into the file first")
        })?;
        Ok((at..at, line))
    }

    /// Reads the new text and checks that each value is as intended.
    fn check(&self, edited: &str, changes: &[Change]) -> Result<(), Refusal> {
        let failed = |what: &str| {
            let message = format!("the file cannot be changed in place: {what}");
            Refusal::new(message, "change it by hand; nothing was written")
        };
        let places = (self.places)(edited).map_err(|error| failed(&error))?;
        for change in changes {
            let place = find(&places, change)?;
            let is_there = place.is_some_and(|place| (self.is_same)(&edited[place.span.clone()], &change.value));
            if !is_there {
                return Err(failed(&format!("`{}` would not be {}", change.name, change.value)));
            }
        }
        Ok(())
    }
}

/// A range of bytes in a text, with its replacement.
type Splice = (Range<usize>, String);

fn spliced(text: &str, mut splices: Vec<Splice>) -> String {
    // Works from the end, so that earlier positions stay valid; texts added at one position stay in order.
    splices.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut edited = text.to_owned();
    let mut at = 0;
    while at < splices.len() {
        let span = splices[at].0.clone();
        let together = splices[at..].iter().take_while(|(other, _)| *other == span).count();
        let all: String = splices[at..at + together].iter().map(|(_, text)| text.as_str()).collect();
        edited.replace_range(span, &all);
        at += together;
    }
    edited
}

fn shown(old: &str) -> String {
    let old = old.trim();
    if old.is_empty() { "nothing".to_owned() } else { format!("`{}`", old.escape_debug()) }
}

/// Finds the place of a change: the given path, else the top-level key with the parameter's name, else the only such
/// key at any depth. In names, `-` equals `_`. Several possible places are an error.
fn find<'p>(places: &'p [Place], change: &Change) -> Result<Option<&'p Place>, Refusal> {
    let several = |found: &[&Place]| {
        let all: Vec<String> = found.iter().map(|place| format!("`{}`", place.dotted())).collect();
        let first = found.first().map(|place| place.dotted()).unwrap_or_default();
        let message = format!("`{}` is there more than once: {}", change.name, all.join(", "));
        Refusal::new(message, format!("say which: --map {}={first}", change.name))
    };
    let only = |found: Vec<&'p Place>| match found.as_slice() {
        [] => Ok(None),
        [place] => Ok(Some(*place)),
        [first, rest @ ..] if rest.iter().all(|place| place.path == first.path) => Err(Refusal::new(
            format!("`{}` is there twice, and readers differ in which of them counts", first.dotted()),
            "take one of them out",
        )),
        all => Err(several(all)),
    };
    if let Some(path) = &change.path {
        return only(places.iter().filter(|place| place.dotted() == *path).collect());
    }
    let plain = |name: &str| name.replace('-', "_");
    let is_named = |place: &&Place| place.path.last().is_some_and(|key| plain(key) == plain(&change.name));
    let top: Vec<&Place> = places.iter().filter(|place| place.path.len() == 1).filter(is_named).collect();
    if !top.is_empty() {
        return only(top);
    }
    only(places.iter().filter(is_named).filter(|place| place.obstacle.is_none()).collect())
}

fn unknown_keys(unknown: &[&Change], places: &[Place]) -> Refusal {
    let settings = || places.iter().filter(|place| place.obstacle.is_none());
    let names: Vec<_> = unknown.iter().map(|it| format!("`{}`", it.path.as_deref().unwrap_or(&it.name))).collect();
    let near = |change: &Change| -> Vec<String> {
        let wanted = change.path.as_deref().unwrap_or(&change.name);
        let likeness = |place: &Place| {
            let last = place.path.last().map_or("", String::as_str);
            strsim::jaro_winkler(wanted, last).max(strsim::jaro_winkler(wanted, &place.dotted()))
        };
        let mut all: Vec<(f64, String)> = settings().map(|place| (likeness(place), place.dotted())).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.into_iter().filter(|(likeness, _)| *likeness > 0.6).take(3).map(|(_, name)| name).collect()
    };
    let alike: Vec<String> = unknown.iter().flat_map(|change| near(change)).collect();
    let there: Vec<String> = settings().take(8).map(Place::dotted).collect();
    let found = match (alike.is_empty(), there.is_empty()) {
        (false, _) => format!("; alike are {}", quoted(&alike)),
        (true, false) => format!("; there are {}", quoted(&there)),
        (true, true) => "; there is no setting at all".to_owned(),
    };
    let example = unknown.first().map_or("", |change| change.name.as_str());
    let place = alike.first().or(there.first()).map_or("train.batch_size", String::as_str);
    let hint = format!(
        "name its place with --map {example}={place}, add missing settings with --add, or leave it out with --skip {example}"
    );
    let is = if unknown.len() == 1 { "is no setting" } else { "are no settings" };
    Refusal::new(format!("{} {is} of the file{found}", names.join(", ")), hint)
}

fn quoted(names: &[String]) -> String {
    let mut seen: Vec<String> = Vec::new();
    for name in names.iter().map(|name| format!("`{name}`")) {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen.join(", ")
}

/// Lists the lines that differ, old and new, with their numbers.
pub(super) fn difference(old: &str, new: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut text = String::new();
    let (mut at, mut to) = (0, 0);
    while at < before.len() || to < after.len() {
        match (before.get(at), after.get(to)) {
            (Some(one), Some(other)) if one == other => {}
            // The old line follows later in the new text, so the new line was added.
            (Some(one), Some(other)) if after[to..].iter().skip(1).take(ADDED).any(|line| line == one) => {
                text += &format!("{:>5} + {}\n", to + 1, other.trim_end());
                to += 1;
                continue;
            }
            (one, other) => {
                for (line, number, sign) in [(one, at, '-'), (other, to, '+')] {
                    if let Some(line) = line {
                        text += &format!("{:>5} {sign} {}\n", number + 1, line.trim_end());
                    }
                }
            }
        }
        (at, to) = (at + 1, to + 1);
    }
    text
}

/// How many new lines `difference` searches for the next old line: a round number.
const ADDED: usize = 64;

#[cfg(test)]
mod tests;
