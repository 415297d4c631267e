//! Reads required arguments from the usage line of a help.

/// The parts of a usage line outside brackets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Options, as spelled in the usage.
    pub(super) options: Vec<String>,
    /// Positional values.
    pub(super) values: Vec<String>,
}

/// Reads the usage of a help without colours; unknown parts are skipped.
pub(super) fn read(text: &str) -> Usage {
    let line = line_of(text);
    let bare = outside_of_brackets(&line);
    let words: Vec<&str> = bare.split_whitespace().collect();
    let mut usage = Usage::default();
    let mut metavar = None;
    for (at, &word) in words.iter().enumerate().skip(program(&words)) {
        let before = words.get(at.wrapping_sub(1)).copied().unwrap_or_default();
        if word.starts_with('-') {
            usage.options.push(word.split_once('=').map_or(word, |(name, _)| name).to_owned());
            metavar = None;
        } else if before.starts_with('-') && !before.contains('=') {
            metavar = Some(word);
        } else if metavar != Some(word) && is_value(word) {
            usage.values.push(word.to_owned());
        }
    }
    usage
}

/// Joins the lines of the usage: after `usage:`, or below fire's heading.
fn line_of(text: &str) -> String {
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
    for next in lines.take_while(|next| !next.is_empty()) {
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
fn program(words: &[&str]) -> usize {
    match words {
        [_, "-m", ..] => 3,
        words => words.iter().position(|word| word.ends_with(".py")).unwrap_or(0) + 1,
    }
}

/// Returns true if a word stands for a value: a name, or choices in braces.
fn is_value(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '{' | '_')) && word != "OPTIONS"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_outside_of_brackets_must_be_given() {
        for (text, options, values) in [
            (
                "usage: train.py [-h] --data DATA [--lr LR]\n                [--x X [X ...]] DIR\n\nTrains.",
                "--data",
                "DIR",
            ),
            ("usage: python -m pkg.train [-h] -o OUT {fit,test} ...\n", "-o", "{fit,test}"),
            ("Usage: train.py [OPTIONS] DATA\n\n  Trains on DATA.", "", "DATA"),
            ("│ Usage: train.py [OPTIONS] {data} │\n\n", "", "{data}"),
            ("SYNOPSIS\n    train.py DATA <flags>\n\nDESCRIPTION\n", "", "DATA"),
            ("usage: train.py --betas B B (--a A | --b B)\n", "--betas", ""),
            ("usage: train.py [options] [data]\n", "", ""),
            ("no usage at all: [", "", ""),
        ] {
            let usage = read(text);
            assert_eq!(
                (usage.options.join(" "), usage.values.join(" ")),
                (options.to_owned(), values.to_owned()),
                "{text}"
            );
        }
    }
}
