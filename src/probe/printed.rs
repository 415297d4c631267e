//! The source of a command's throughput: its events, or a rate that it prints. Finds such a rate in a printed line, and reads the
//! whole number, however it is written.

use std::sync::LazyLock;

use regex::{Captures, Regex, bytes};

/// Returns the rate that a pattern finds in a line without control sequences: the first group that matches, or the whole match.
///
/// The pattern is tried on the line with plain numbers (`1461.2` for `1,461.2`, `1500` for `1.5k`), then on the line as it was printed.
/// Progress bars print `s/it` instead of `it/s` if a step takes more than a second. So the last try swaps the unit of each number
/// (`0.8it/s` for `1.25s/it`).
pub(super) fn find_rate(pattern: &bytes::Regex, line: &str) -> Option<f64> {
    let plain = with_plain_numbers(line);
    let found = number_in(pattern, &plain).or_else(|| number_in(pattern, line));
    found.or_else(|| number_in(pattern, &with_swapped_units(&plain)))
}

/// Returns true if the text before the match, but not the pattern itself, names an evaluation and no training.
pub(super) fn is_of_evaluation(pattern: &bytes::Regex, line: &str) -> bool {
    static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?i)\b(eval|evaluat(e|ing|ion)|val|valid|validat(e|ing|ion)|test|testing)\b").ok()
    });
    let Some(words) = WORDS.as_ref().filter(|words| !words.is_match(pattern.as_str())) else { return false };
    let before = pattern.find(line.as_bytes()).and_then(|found| line.get(..found.start())).unwrap_or_default();
    words.is_match(before) && !before.to_lowercase().contains("train")
}

/// Returns the last line with a number. Prefers lines that name the unit.
pub(super) fn nearest<'l>(lines: &'l [String], unit: &str) -> Option<&'l str> {
    let thing = unit.split('/').next().unwrap_or(unit).trim_end_matches('s');
    let with_number = || lines.iter().rev().filter(|line| line.bytes().any(|byte| byte.is_ascii_digit()));
    with_number().find(|line| line.contains(thing)).or_else(|| with_number().next()).map(String::as_str)
}

/// Returns the number that a pattern finds, extended to all of its digits.
fn number_in(pattern: &bytes::Regex, line: &str) -> Option<f64> {
    let bytes = line.as_bytes();
    let found = pattern.captures(bytes)?;
    let group = found.iter().skip(1).flatten().next().or_else(|| found.get(0))?;
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_separator = |at: usize| bytes.get(at).is_some_and(|byte| SEPARATORS.contains(&char::from(*byte)));
    let (mut from, mut to) = (group.start(), group.end());
    while from > 0 && is_digit(from) && (is_digit(from - 1) || from > 1 && is_separator(from - 1) && is_digit(from - 2))
    {
        from -= if is_digit(from - 1) { 1 } else { 2 };
    }
    while to > 0 && is_digit(to - 1) && (is_digit(to) || is_separator(to) && is_digit(to + 1)) {
        to += if is_digit(to) { 1 } else { 2 };
    }
    let before = line.get(..from)?.trim_start().strip_suffix('-');
    let is_negative = before.is_some_and(|before| before.is_empty() || before.ends_with([' ', '=', ':']));
    let number = |text: &str| {
        // A pattern such as `[0-9.,]+` also takes the comma behind the number.
        let text = text.trim().trim_end_matches(['.', ',']);
        value(text).or_else(|| text.parse().ok())
    };
    // `568.6,0.31` is two numbers, not one: read only the group.
    let found = number(line.get(from..to)?).or_else(|| number(line.get(group.start()..group.end())?));
    found.filter(|number| number.is_finite() && !is_negative)
}

/// The separators of thousands and decimals in a number.
const SEPARATORS: &[char] = &['.', ',', '_', '\''];

/// Spaces that separate thousands: no-break, narrow no-break, and thin. A plain space separates numbers.
const SPACES: &[char] = &['\u{a0}', '\u{202f}', '\u{2009}'];

/// Returns the line in which numbers with separators, exponents or a factor such as `k` are plain decimals.
///
/// A factor stands directly behind the number, and no letter follows it. If a thing that a rate may count follows, a factor may also
/// stand behind a space or before the letters of the thing, as in `1.5 k samples/s` and `1.5kit/s`.
fn with_plain_numbers(line: &str) -> String {
    static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?x) (^|[^\w.,'])
            ([0-9]+ (?:[.,_'][0-9]+ | [\u{a0}\u{202f}\u{2009}][0-9]{3})* (?:[eE][+-]?[0-9]+)?) ([0-9]*)
            (?: ([kKMG])\b | \x20?([kKMG]) (\s*
                (?:batch|example|frame|image|img|item|it|iter|iteration|record|row|sample|sentence|seq|sequence|step
                |tok|token|word) (?:e?s)?/))?",
        )
        .ok()
    });
    let Some(numbers) = NUMBER.as_ref() else { return line.to_owned() };
    let plain = |found: &Captures<'_>| {
        let (before, number, further_digits) = (&found[1], &found[2], &found[3]);
        let factor = match found.get(4).or(found.get(5)).map(|factor| factor.as_str()) {
            Some("k" | "K") => 1e3,
            Some("M") => 1e6,
            Some(_) => 1e9,
            None => 1.0,
        };
        let is_plain = factor <= 1.0 && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        match value(number) {
            Some(value) if !is_plain && further_digits.is_empty() => {
                format!("{before}{}{}", value * factor, found.get(6).map_or("", |thing| thing.as_str()))
            }
            _ => found[0].to_owned(),
        }
    };
    numbers.replace_all(line, plain).into_owned()
}

/// Returns the value of a number that may have thousands separators, a decimal comma or an exponent.
///
/// If the number has points and commas, the last separator is the decimal separator. A single separator before exactly three digits
/// separates thousands if it is a comma, and is decimal if it is a point.
fn value(text: &str) -> Option<f64> {
    let text = text.replace(['_', '\''], "").replace(SPACES, "");
    let (digits, exponent) = text.split_at(text.find(['e', 'E']).unwrap_or(text.len()));
    let commas = digits.matches(',').count();
    let points = digits.matches('.').count();
    let decimal = match (commas, points) {
        (0, 0 | 1) => digits.to_owned(),
        (1.., 1..) if digits.rfind(',') > digits.rfind('.') => decimal(digits, '.', ',')?,
        (1.., 1..) => decimal(digits, ',', '.')?,
        (0, _) => without(digits, '.')?,
        (1, 0) => without(digits, ',').unwrap_or_else(|| digits.replace(',', ".")),
        (_, 0) => without(digits, ',')?,
    };
    (decimal + exponent).parse().ok()
}

/// Returns a number with a decimal point, without the separators between its thousands.
fn decimal(digits: &str, thousands: char, point: char) -> Option<String> {
    let (whole, part) = digits.split_once(point)?;
    part.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    Some(format!("{}.{part}", without(whole, thousands)?))
}

/// Returns the digits without the separator, if the separator stands between groups of three.
fn without(digits: &str, separator: char) -> Option<String> {
    let mut groups = digits.split(separator);
    let is_first = groups.next().is_some_and(|first| (1..=3).contains(&first.len()) && !first.starts_with('0'));
    (is_first && groups.all(|group| group.len() == 3)).then(|| digits.replace(separator, ""))
}

/// Returns the line with its units swapped: each time per item becomes a rate, and each rate becomes a time per item.
fn with_swapped_units(line: &str) -> String {
    static UNITS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"([0-9]+(?:\.[0-9]+)?)(\s*)([A-Za-z]+)/([A-Za-z]+)").ok());
    let Some(units) = UNITS.as_ref() else { return line.to_owned() };
    let swapped = |found: &Captures<'_>| {
        let (number, space, above, below) = (found[1].parse::<f64>().unwrap_or(0.0), &found[2], &found[3], &found[4]);
        match (seconds_in(above), seconds_in(below)) {
            (Some(seconds), None) if number > 0.0 => format!("{}{space}{below}/s", 1.0 / (number * seconds)),
            (None, Some(_)) if number > 0.0 => format!("{}{space}{below}/{above}", 1.0 / number),
            _ => found[0].to_owned(),
        }
    };
    units.replace_all(line, swapped).into_owned()
}

/// The source of the throughput.
#[derive(Debug, Clone)]
pub enum Rate {
    /// The step reports events; see `docs/protocol.md`.
    Events,
    /// The step prints a number, and a pattern finds it.
    Pattern {
        /// The pattern of the number: its first group that takes part in the match, or the whole match.
        pattern: bytes::Regex,
        /// The unit of the number.
        unit: RateUnit,
    },
}

/// The unit of a printed number.
#[derive(Debug, Clone, PartialEq)]
pub struct RateUnit {
    /// The unit of time in seconds: 1 for `s`, 0.001 for `ms`.
    seconds: f64,
    /// True if the number is a time per thing (`s/step`), not things per time (`steps/s`).
    inverse: bool,
    /// The counted thing in the singular: `sample`, or `step`.
    thing: String,
}

/// The error for a string that is not a unit of a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no unit of a rate; write it like `samples/s`, `steps/s` or `ms/step`")]
pub struct RateUnitError {
    text: String,
}

/// The units of time, each with its length in seconds.
const TIMES: &[(&str, f64)] = &[
    ("s", 1.0),
    ("sec", 1.0),
    ("second", 1.0),
    ("seconds", 1.0),
    ("ms", 1e-3),
    ("us", 1e-6),
    ("min", 60.0),
    ("h", 3600.0),
];
const STEPS: &[&str] = &["step", "steps", "it", "its", "iter", "iters", "iteration", "iterations", "batch", "batches"];

fn seconds_in(word: &str) -> Option<f64> {
    TIMES.iter().find(|(name, _)| *name == word).map(|&(_, seconds)| seconds)
}

impl RateUnit {
    /// Reads `things/time` or `time/thing`.
    ///
    /// # Errors
    /// The string has another format.
    pub fn parse(text: &str) -> Result<Self, RateUnitError> {
        let error = || RateUnitError { text: text.to_owned() };
        let (above, below) = text.trim().split_once('/').ok_or_else(error)?;
        let (above, below) = (above.trim(), below.trim());
        let (seconds, inverse, thing) = match (seconds_in(above), seconds_in(below)) {
            (None, Some(seconds)) => (seconds, false, above),
            (Some(seconds), None) => (seconds, true, below),
            _ => return Err(error()),
        };
        if thing.is_empty() {
            return Err(error());
        }
        let thing = if STEPS.contains(&thing) { "step" } else { thing };
        Ok(Self { seconds, inverse, thing: thing.to_owned() })
    }

    /// Returns true if the number counts steps. Then samples per step must be known to compare batch sizes.
    pub fn counts_steps(&self) -> bool {
        self.thing == "step"
    }

    /// Returns the throughput for a number and this many samples per step.
    pub(super) fn throughput(&self, number: f64, samples_per_step: Option<f64>) -> f64 {
        let per_second = if self.inverse { 1.0 / (number * self.seconds) } else { number / self.seconds };
        per_second * samples_per_step.filter(|_| self.counts_steps()).unwrap_or(1.0)
    }

    pub(super) fn throughput_unit(&self) -> String {
        match self.thing.as_str() {
            "step" => "samples/s".to_owned(),
            thing if self.inverse && !thing.ends_with('s') => format!("{thing}s/s"),
            thing => format!("{thing}/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rate that the pattern of `gputune init` finds.
    fn samples(line: &str) -> Option<f64> {
        find_rate(&bytes::Regex::new(r"([0-9.]+)\s*samples/s").unwrap(), line)
    }

    #[test]
    fn a_number_is_read_as_a_whole() {
        let plain = [("812.3", 812.3), ("430,1", 430.1), ("0,461", 0.461), ("1.461", 1.461), ("5e-1", 0.5)];
        let spaced = ["1\u{a0}461.2", "1\u{202f}461.2", "1\u{2009}461,2"].map(|printed| (printed, 1461.2));
        let thousands = ["1,461.2", "1_461.2", "1'461.2", "1.461,2"].map(|printed| (printed, 1461.2));
        let whole = ["1,461", "1.461e+03", "1.461E3"].map(|printed| (printed, 1461.0));
        let millions = ["1,234,567", "1.234.567"].map(|printed| (printed, 1_234_567.0));
        let factors = [("1.46k", 1460.0), ("1.46K", 1460.0), ("2M", 2e6), ("1.5 k", 1500.0)];
        for (printed, number) in [&plain[..], &spaced, &thousands, &whole, &millions, &factors].concat() {
            for (before, behind) in [("step 40: ", " samples/s"), ("[", "samples/s]"), ("x=", " samples/s")] {
                let line = format!("{before}{printed}{behind}");
                assert_eq!(samples(&line), Some(number), "{line}");
            }
        }
        assert_eq!(samples("step 40: -3.5 samples/s"), None);
        assert_eq!(samples("steps 1-3.5 samples/s"), Some(3.5));
        assert_eq!(samples("nan samples/s"), None);
    }

    #[test]
    fn what_is_no_number_stays() {
        for line in ["fp32, 12:30:01, v1.2.3, 64kB of 5 MB", "1,2,3", "gpu0", "", "k", "5 GPUs", "α 3 β"] {
            assert_eq!(with_plain_numbers(line), line);
        }
    }

    #[test]
    fn a_pattern_with_fewer_characters_than_the_number_finds_all_of_it() {
        let number = |pattern, line| find_rate(&bytes::Regex::new(pattern).unwrap(), line);
        assert_eq!(number(r"([0-9]+) samples", "1461.5 samples"), Some(1461.5));
        assert_eq!(number(r"speed ([0-9]+)", "speed 12.5"), Some(12.5));
        assert_eq!(number(r"([0-9.]+)k samples", "1.46k samples"), Some(1.46), "the factor is in the pattern");
        assert_eq!(number(r"samples/s: ([0-9.]+)", "step 40 samples/s: 1,812.3"), Some(1812.3));
        assert_eq!(number(r"[0-9.]+", "x 12.5 y"), Some(12.5));
        assert_eq!(number(r"samples/s: ([0-9.,]+)", "samples/s: 568.6, loss: 0.31"), Some(568.6));
        assert_eq!(number(r"^[0-9]+,([0-9.]+)", "40,568.6,0.31"), Some(568.6));
    }

    #[test]
    fn lines_of_an_evaluation_are_recognised() {
        let plain = bytes::Regex::new(r"([0-9.]+)\s*samples/s").unwrap();
        for line in ["eval 8200.0 samples/s", "Validating: 100%|##| 8200.0 samples/s", "[test] 8200.0 samples/s"] {
            assert!(is_of_evaluation(&plain, line), "{line}");
        }
        for line in
            ["train (latest) 571.0 samples/s", "val_loss 0.3, 571.0 samples/s", "train 3 test 0 571.0 samples/s"]
        {
            assert!(!is_of_evaluation(&plain, line), "{line}");
        }
        let asked = bytes::Regex::new(r"eval ([0-9.]+) samples/s").unwrap();
        assert!(!is_of_evaluation(&asked, "eval 8200.0 samples/s"));
    }

    #[test]
    fn a_progress_bar_may_swap_its_unit() {
        let steps = bytes::Regex::new(r"([0-9.]+)\s*it/s").unwrap();
        let number = |line| find_rate(&steps, line);
        assert_eq!(number("0%| | 7/1000000 [00:01<99:59:59, 2.08it/s]"), Some(2.08));
        assert_eq!(number("0%| | 7/1000000 [00:01<99:59:59, 1.25s/it]"), Some(0.8));
        assert_eq!(number("8.0 ms/it"), Some(125.0));
        assert_eq!(number("1.25kit/s"), Some(1250.0));
        assert_eq!(number("0.00s/it"), None);
        assert_eq!(find_rate(&bytes::Regex::new(r"([0-9.]+)s/it").unwrap(), "4.0it/s"), Some(0.25));
    }

    #[test]
    fn the_nearest_line_names_the_unit() {
        let lines = ["epoch 1", "12.5q samples/s", "loss 0.3", "done"].map(str::to_owned);
        assert_eq!(nearest(&lines, "samples/s"), Some("12.5q samples/s"));
        assert_eq!(nearest(&lines, "images/s"), Some("loss 0.3"));
        assert_eq!(nearest(&lines[3..], "samples/s"), None);
    }

    #[test]
    fn rates_and_times_become_throughputs() {
        let throughput = |unit: &str, number, samples| {
            let unit = RateUnit::parse(unit).unwrap();
            (unit.throughput(number, samples), unit.throughput_unit())
        };
        assert_eq!(throughput("samples/s", 1234.5, None), (1234.5, "samples/s".to_owned()));
        assert_eq!(throughput("tokens/sec", 10.0, Some(8.0)), (10.0, "tokens/s".to_owned()));
        assert_eq!(throughput("it/s", 10.0, Some(8.0)), (80.0, "samples/s".to_owned()));
        assert_eq!(throughput("ms/step", 20.0, Some(8.0)), (400.0, "samples/s".to_owned()));
        assert_eq!(throughput("s/sample", 0.5, None), (2.0, "samples/s".to_owned()));
        for text in ["", "samples", "s/s", "a/b", "/s", "s/"] {
            assert!(RateUnit::parse(text).is_err(), "{text}");
        }
    }
}
