//! Reads the help texts of Python's argument parsers: argparse (with HfArgumentParser and jsonargparse), click, typer and tyro with
//! their boxes, absl, and fire. Also reads Hydra's printed config.
//!
//! Any text is accepted; unknown parts are skipped.

use std::sync::LazyLock;

use regex::Regex;

use super::argument::{Argument, Kind};

/// The largest indentation of options; descriptions are indented more.
const DEEPEST: usize = 8;
/// The most arguments of a help. A round number: a usual help has a few hundred, and a longer text is no help.
const MOST_ARGUMENTS: usize = 5_000;
/// Hydra's heading of the composed config (`hydra/conf/hydra/help/default.yaml`).
const HYDRA_CONFIG: &str = "== Config ==";

/// Returns the arguments in a help text, in its order.
pub fn read(text: &str) -> Vec<Argument> {
    let text = without_colours(text);
    if let Some((_, composed)) = text.split_once(HYDRA_CONFIG) {
        return config(composed);
    }
    let mut arguments = options(&text);
    let usage = usage(&text);
    for argument in &mut arguments {
        argument.is_required |= argument.names.iter().any(|name| usage.options.contains(name));
    }
    arguments
}

/// Returns the required positional values in a help's usage, as spelled there: `DATA`, `{train,test}`.
pub fn values(text: &str) -> Vec<String> {
    usage(&without_colours(text)).values
}

/// Returns true if a text is a help: it has a usage line, Hydra's heading, or the output of fire or absl.
pub fn is_help(text: &str) -> bool {
    let text = without_colours(text);
    let starts = |line: &str, word: &str| line.trim_start_matches(['│', ' ']).to_ascii_lowercase().starts_with(word);
    text.contains(HYDRA_CONFIG)
        || text.lines().any(|line| starts(line, "usage:") || starts(line, "synopsis") || line.trim() == "flags:")
}

/// Removes terminal escape sequences for colours (ECMA-48, such as "Select Graphic Rendition").
fn without_colours(text: &str) -> String {
    static SEQUENCES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("\x1b\\[[0-9;?]*[A-Za-z]").ok());
    SEQUENCES.as_ref().map_or_else(|| text.to_owned(), |sequences| sequences.replace_all(text, "").into_owned())
}

/// An option whose description may go on.
struct Open {
    argument: Argument,
    description: String,
}

impl Open {
    fn close(mut self) -> Argument {
        if self.argument.default.is_none() {
            let is_value = |default: &String| !matches!(default.as_str(), "None" | "null");
            self.argument.default = default_in(&self.description).filter(is_value);
        }
        self.argument.is_required |= ["(required)", "[required"].iter().any(|word| self.description.contains(word));
        if let (Kind::Value { choices }, Some(listed)) = (&mut self.argument.kind, self.description.strip_prefix('<'))
            && let Some((names, _)) = listed.split_once('>')
            && names.contains('|')
        {
            // absl's enumerations.
            *choices = names.split('|').map(|name| name.trim().to_owned()).collect();
        }
        self.argument
    }
}

fn options(text: &str) -> Vec<Argument> {
    let mut arguments = Vec::new();
    let mut open: Option<Open> = None;
    let mut in_usage = false;
    for line in text.lines() {
        let boxed = line.trim_start().starts_with('│');
        let line = line.trim_end().trim_end_matches('│').trim_end();
        let inner = if boxed { line.trim_start().trim_start_matches('│') } else { line };
        let words = inner.trim();
        if words.is_empty() {
            in_usage = false;
            continue;
        }
        in_usage |= words.to_ascii_lowercase().starts_with("usage:");
        if in_usage {
            continue;
        }
        let indent = inner.len() - inner.trim_start().len();
        // typer's boxes mark required options with a star.
        let words = if boxed { words.trim_start_matches(['*', ' ']) } else { words };
        if let Some(next) = (indent <= DEEPEST).then(|| header(words, boxed)).flatten() {
            arguments.extend(open.take().map(Open::close));
            if arguments.len() >= MOST_ARGUMENTS {
                return arguments;
            }
            open = Some(next);
        } else if let Some(open) = &mut open {
            if indent == 0 && !boxed {
                // The line is a heading, or the text at the end.
                open.description.push('\n');
                continue;
            }
            open.description.push(' ');
            open.description.push_str(words);
        }
    }
    arguments.extend(open.map(Open::close));
    arguments
}

/// Reads the line with which an option begins.
fn header(words: &str, boxed: bool) -> Option<Open> {
    let mut names: Vec<String> = Vec::new();
    let mut values: Vec<String> = Vec::new();
    let (mut rest, mut pair, mut colon, mut assigned) = (words, false, false, false);
    loop {
        let gap = rest.len() - rest.trim_start().len();
        let here = rest.trim_start();
        if here.is_empty() {
            rest = here;
            break;
        }
        if let Some((name, after, optional)) = flag(here) {
            if names.is_empty() && gap > 0 {
                return None;
            }
            pair |= optional;
            names.push(name.to_owned());
            rest = after.strip_prefix(',').unwrap_or(after);
            if let Some(described) = after.strip_prefix(':') {
                (colon, rest) = (true, described);
                break;
            }
            if let Some(value) = after.strip_prefix('=') {
                assigned = true;
                rest = value.split_once(char::is_whitespace).map_or("", |(_, rest)| rest);
                break;
            }
        } else if let Some(after) = here.strip_prefix("/ ").filter(|_| !names.is_empty()) {
            rest = after;
        } else if let Some((value, after)) = metavar(here, gap, boxed).filter(|_| !names.is_empty()) {
            values.push(value.to_owned());
            rest = after.strip_prefix(',').unwrap_or(after);
        } else {
            break;
        }
    }
    if names.is_empty() {
        return None;
    }
    let kind = kind(&mut names, &values, (pair, colon || assigned, boxed));
    let argument = Argument::new(names, kind);
    Some(Open { argument, description: rest.trim().to_owned() })
}

/// Reads a flag at the beginning of a text. Returns the flag, the rest, and true if it is absl's `--[no]name`.
fn flag(text: &str) -> Option<(&str, &str, bool)> {
    let dashes = text.len() - text.trim_start_matches('-').len();
    if !(1..=2).contains(&dashes) {
        return None;
    }
    let bare = &text[dashes..];
    if let Some(name) = bare.strip_prefix("[no]") {
        let end = name.find(|c: char| !is_name(c)).unwrap_or(name.len());
        return (end > 0).then(|| (&name[..end], &name[end..], true));
    }
    let end = bare.find(|c: char| !is_name(c)).unwrap_or(bare.len());
    let name = bare[..end].trim_end_matches(['.', '-']);
    let is_flag = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && (dashes == 2 || name.len() <= 20);
    let after = bare[name.len()..].trim_start_matches('+');
    let ends = after.chars().next().is_none_or(|c| c.is_whitespace() || matches!(c, ',' | '=' | ':' | '/' | '['));
    (is_flag && ends).then(|| (&text[..dashes + name.len()], after, false))
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Reads the placeholder of a value after a flag; returns it and the rest.
fn metavar(text: &str, gap: usize, boxed: bool) -> Option<(&str, &str)> {
    let close = match text.chars().next()? {
        '{' => Some('}'),
        '[' => Some(']'),
        '<' => Some('>'),
        _ => None,
    };
    let end = match close {
        Some(close) => text.find(close)? + close.len_utf8(),
        None => text.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(text.len()),
    };
    let (word, after) = text.split_at(end);
    let is_told =
        |word: &str| ["default", "required", "env var", "x>", "x<"].iter().any(|start| word[1..].starts_with(start));
    if boxed {
        const TYPES: &[&str] =
            &["INTEGER", "FLOAT", "TEXT", "PATH", "FILE", "BOOLEAN", "INT", "STR", "BOOL", "DIRECTORY", "RANGE"];
        let is_value = match close {
            Some(_) => word.is_ascii() && !is_told(word),
            None => TYPES.contains(&word),
        };
        return is_value.then_some((word, after));
    }
    // Two or more spaces separate the description.
    (gap == 1 && !(close.is_some() && word.is_ascii() && is_told(word))).then_some((word, after))
}

/// Determines the kind of an argument from its spellings and values; removes the spelling that turns it off.
fn kind(names: &mut Vec<String>, values: &[String], (pair, takes, boxed): (bool, bool, bool)) -> Kind {
    if pair {
        let off = names.first().map(|name| format!("--no{name}")).unwrap_or_default();
        names.iter_mut().for_each(|name| *name = format!("--{name}"));
        return Kind::Pair { off };
    }
    let on = |name: &str| ["--no-", "--no_"].iter().find_map(|no| name.strip_prefix(no)).map(|on| format!("--{on}"));
    let position = names.iter().position(|name| on(name).is_some_and(|on| names.contains(&on)));
    if let Some(at) = position {
        return Kind::Pair { off: names.remove(at) };
    }
    let choices = |word: &str| -> Vec<String> {
        let inner = word.trim_matches(['{', '}', '[', ']', '<', '>']);
        let by = if word.starts_with('{') { ',' } else { '|' };
        let all = inner.split(by).map(|choice| choice.trim().to_owned()).filter(|choice| !choice.is_empty());
        if inner.contains(by) { all.collect() } else { Vec::new() }
    };
    match values.last().map(String::as_str) {
        None if takes => Kind::Value { choices: Vec::new() },
        None => Kind::Switch,
        Some("<bool>") if boxed => Kind::Switch,
        Some(word) if word.starts_with('[') && !word.contains('|') => Kind::MaybeValue,
        Some(word) => Kind::Value { choices: choices(word) },
    }
}

/// Returns the default from a description, in any parser's notation.
fn default_in(description: &str) -> Option<String> {
    // `[default: 32; x>=1]`, `(default: 32)`, `(type: int, default: 32)`, `(default: '128')`, `(default=32)`
    static BRACKETED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?i)[\[(,;] ?default(?:s to|:|=| is)? ?['"]?([^\])'",;]+)"#).ok());
    // fire prints `Default: 32`.
    static PLAIN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?:^|\s)Default: (\S+)").ok());
    let last = BRACKETED.as_ref()?.captures_iter(description).last();
    let found = last.or_else(|| PLAIN.as_ref()?.captures_iter(description).last())?;
    Some(found.get(1)?.as_str().trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the settings of a YAML config, such as Hydra prints, as overrides: `data.batch_size` with its value.
fn config(text: &str) -> Vec<Argument> {
    let mut arguments: Vec<Argument> = Vec::new();
    let mut path: Vec<(usize, String)> = Vec::new();
    for line in text.lines() {
        let words = line.trim();
        let indent = line.len() - line.trim_start().len();
        if indent == 0 && words.starts_with("Powered by Hydra") {
            break;
        }
        let Some((key, value)) = words.split_once(':').filter(|(key, value)| {
            !key.is_empty() && key.chars().all(is_name) && (value.is_empty() || value.starts_with(' '))
        }) else {
            continue;
        };
        while path.last().is_some_and(|(depth, _)| *depth >= indent) {
            path.pop();
        }
        let value = value.trim();
        if value.is_empty() {
            path.push((indent, key.to_owned()));
            continue;
        }
        let mut full: Vec<&str> = path.iter().map(|(_, part)| part.as_str()).collect();
        full.push(key);
        let value = value.trim_matches(['\'', '"']);
        // Hydra shows a value without a default as `???`. A job that never reads it runs without it, so it is not required.
        let default = Some(value.to_owned()).filter(|value| value != "null" && value != "???");
        arguments.push(Argument { default, ..Argument::new(vec![full.join(".")], Kind::Override) });
        if arguments.len() >= MOST_ARGUMENTS {
            break;
        }
    }
    arguments
}

/// The parts of a usage line outside brackets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    options: Vec<String>,
    values: Vec<String>,
}

/// Reads the usage of a help without colours; unknown parts are skipped.
fn usage(text: &str) -> Usage {
    let line = usage_line(text);
    let bare = outside_of_brackets(&line);
    let words: Vec<&str> = bare.split_whitespace().collect();
    let mut usage = Usage::default();
    let mut metavar = None;
    for (at, &word) in words.iter().enumerate().skip(program_words(&words)) {
        let before = words.get(at.wrapping_sub(1)).copied().unwrap_or_default();
        if word.starts_with('-') {
            usage.options.push(word.split_once('=').map_or(word, |(name, _)| name).to_owned());
            metavar = None;
        } else if before.starts_with('-') && !before.contains('=') {
            metavar = Some(word);
        } else if metavar != Some(word) && is_usage_value(word) {
            usage.values.push(word.to_owned());
        }
    }
    usage
}

/// Joins the lines of the usage: after `usage:`, or below fire's heading.
fn usage_line(text: &str) -> String {
    let mut lines = text.lines().map(|line| line.trim_matches(['│', ' ']));
    let mut line = String::new();
    for first in lines.by_ref() {
        if first.to_ascii_lowercase().starts_with("usage:") {
            line = first["usage:".len()..].to_owned();
            break;
        }
        if first == "SYNOPSIS" {
            break;
        }
    }
    // A heading may follow directly, such as absl's `flags:`.
    for next in lines.take_while(|next| !next.is_empty() && !next.ends_with(':')) {
        line.push(' ');
        line.push_str(next);
    }
    line
}

/// Removes optional parts and alternatives.
fn outside_of_brackets(line: &str) -> String {
    let mut depth = 0_usize;
    let mut bare = String::new();
    for c in line.chars() {
        match c {
            '[' | '(' | '<' => depth += 1,
            ']' | ')' | '>' => depth = depth.saturating_sub(1),
            c if depth == 0 => bare.push(c),
            _ => {}
        }
    }
    bare
}

/// Returns the number of words that name the program.
fn program_words(words: &[&str]) -> usize {
    match words {
        [_, "-m", ..] => 3,
        words => words.iter().position(|word| word.ends_with(".py")).unwrap_or(0) + 1,
    }
}

/// Returns true if a word stands for a value: a name, or choices in braces.
fn is_usage_value(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '{' | '_')) && word != "OPTIONS"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_outside_of_brackets_must_be_given() {
        for (text, options, values) in [
            ("usage: train.py [-h] --data DATA [--lr LR]\n         [--x X [X ...]] DIR\n\nTrains.", "--data", "DIR"),
            ("usage: python -m pkg.train [-h] -o OUT {fit,test} ...\n", "-o", "{fit,test}"),
            ("Usage: train.py [OPTIONS] DATA\n\n  Trains on DATA.", "", "DATA"),
            ("│ Usage: train.py [OPTIONS] {data} │\n\n", "", "{data}"),
            ("SYNOPSIS\n    train.py DATA <flags>\n\nDESCRIPTION\n", "", "DATA"),
            ("usage: train.py --betas B B (--a A | --b B)\n", "--betas", ""),
            ("usage: train.py [options] [data]\n", "", ""),
            ("no usage at all: [", "", ""),
        ] {
            let usage = usage(text);
            assert_eq!([usage.options.join(" "), usage.values.join(" ")], [options, values], "{text}");
        }
    }
}
