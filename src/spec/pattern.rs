//! Turns `throughput = { pattern = ..., unit = ... }` into a rate that is read from output.

use std::ops::Range;

use regex::bytes::RegexBuilder;

use super::error::{SourceFile, SpecError};
use super::file::{StepTable, ThroughputTable};
use crate::probe::Rate;

const EXAMPLE: &str = "write pattern = '([0-9.]+) samples/s'";

const TOO_LARGE: &str = "it is too large";

/// The rate of a table.
pub(super) fn build(source: &SourceFile, table: &ThroughputTable, step: &StepTable) -> Result<Rate, SpecError> {
    let ThroughputTable { pattern, unit } = table;
    if pattern.value.is_empty() {
        return Err(source.error(pattern.span.clone(), "the pattern is empty", EXAMPLE));
    }
    let compiled = RegexBuilder::new(&pattern.value).size_limit(1 << 20).build().map_err(|error| {
        let (reason, part) = explained(&error.to_string(), &pattern.value);
        let span = source.inside(&pattern.span, &pattern.value, part);
        let hint = match reason.as_str() {
            TOO_LARGE => "repeat less often: * and + need no number",
            _ => "a sign that is meant itself has a backslash in front, such as '\\(' in single quotes",
        };
        source.error(span, format!("this is no regular expression: {reason}"), hint)
    })?;
    let groups = compiled.captures_len();
    // Alternatives with one group each are fine: the first group that takes part counts.
    if groups > 2 && compiled.static_captures_len() == Some(groups) {
        let hint = "write (?:...) for the groups that are not the number";
        let message = "the pattern has several groups, so which is the number?";
        return Err(source.error(pattern.span.clone(), message, hint));
    }
    let unit_of_rate = unit.value.0.clone();
    if unit_of_rate.counts_steps() && step.samples_per_step.is_none() {
        let message = "a rate of steps does not tell how fast samples are trained";
        let hint = "add samples_per_step to [step], for example samples_per_step = \"batch_size\"";
        return Err(source.error(unit.span.clone(), message, hint));
    }
    Ok(Rate::Pattern { pattern: compiled, unit: unit_of_rate })
}

/// Returns the reason from the last line of a pattern's error, and the place at which carets in the line above point.
fn explained(error: &str, pattern: &str) -> (String, Option<Range<usize>>) {
    let last = error.lines().last().unwrap_or_default();
    let reason = match last.trim_start_matches("error: ") {
        long if long.contains("size limit") => TOO_LARGE.to_owned(),
        short => short.to_owned(),
    };
    let lines: Vec<&str> = error.lines().collect();
    let part = lines.windows(2).find_map(|pair| {
        let (text, carets) = (pair[0], pair[1]);
        let indent = text.strip_suffix(pattern)?.len();
        let is_carets = carets.contains('^') && carets.chars().all(|c| matches!(c, ' ' | '^'));
        let first = carets.find('^').filter(|_| is_carets)?.checked_sub(indent)?;
        let mut places = pattern.char_indices().map(|(place, _)| place).skip(first);
        let count = carets[first + indent..].chars().take_while(|c| *c == '^').count();
        let start = places.next()?;
        Some(start..places.nth(count.checked_sub(1)?).unwrap_or(pattern.len()))
    });
    (reason, part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_a_pattern_is_that_of_the_carets() {
        for (pattern, part) in [("é(a", 2..3), (r"rate \y+", 5..7), ("a**b{", 4..5)] {
            let error = RegexBuilder::new(pattern).build().unwrap_err().to_string();
            assert_eq!(explained(&error, pattern).1, Some(part), "{error}");
        }
    }
}
