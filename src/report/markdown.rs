//! A study as a page, for a CI step summary.

use std::fmt::Write as _;

use super::best::BestReport;
use super::care::left_out;
use super::front::{Rows, same_in_all};
use super::row::{result_name, shown_result, sorted};
use super::table::verdict;
use crate::quantity::show_bytes;
use crate::study::Study;
use crate::telemetry::Device;

/// The study as Markdown: verdict with what else is known of the best config, command, table of trials.
pub fn summary(study: &Study, device: &Device, name: &str, best: Option<&BestReport>) -> String {
    let mut text =
        format!("# gputune: {}\n\nDevice: {} (driver: {})\n\n", cell(name), cell(&device.name), cell(&device.driver));
    let more: String = best.iter().flat_map(|best| best.more_lines()).map(|line| format!("\n{line}")).collect();
    let _ = writeln!(text, "```text\n{}{more}\n```\n", verdict(study));
    if let Some(command) = best.and_then(BestReport::shown_command) {
        let fence = if command.contains("```") { "````" } else { "```" };
        let _ = writeln!(text, "{fence}sh\n{command}\n{fence}\n");
    }
    front(study, &mut text);
    let names: Vec<&str> = study.space.parameters().iter().map(crate::space::Parameter::name).collect();
    let _ = writeln!(
        text,
        "| # | {} | {} | peak memory | left out |",
        names.join(" | "),
        cell(&result_name(&study.objective))
    );
    let _ = writeln!(text, "|--:|{}---|--:|---|", "--:|".repeat(names.len()));
    for trial in sorted(study) {
        let settings = study.settings(&trial.config);
        let values = names
            .iter()
            .map(|name| settings.get(name).map_or_else(|| "-".to_owned(), |value| cell(&value.to_string())));
        let memory = trial.outcome.partial_measurement().and_then(|measurement| measurement.peak_memory_bytes);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            trial.number,
            values.collect::<Vec<_>>().join(" | "),
            cell(&shown_result(&study.objective, trial)),
            memory.map(show_bytes).unwrap_or_default(),
            cell(&left_out(trial.outcome.partial_measurement()))
        );
    }
    text
}

/// The front as a table of its own, where the result is one.
fn front(study: &Study, text: &mut String) {
    if !study.objective.is_pareto() {
        return;
    }
    let front = study.front();
    let Rows { header, rows, .. } = Rows::of(study, &front);
    let line = |row: &[String]| row.iter().map(|text| cell(text)).collect::<Vec<_>>().join(" | ");
    let _ = writeln!(text, "## Front\n\n| {} |\n|---|{}", line(&header), "--:|".repeat(header.len() - 1));
    for row in rows {
        let _ = writeln!(text, "| {} |", line(&row));
    }
    if let Some(same) = same_in_all(study, &front) {
        let _ = writeln!(text, "\nIn all: {}", cell(&same));
    }
    let _ = writeln!(text, "\n## Trials\n");
}

/// A text that cannot break out of its cell, whatever a step printed.
pub(super) fn cell(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' => {
                safe.push('\\');
                safe.push(c);
            }
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_prints_cannot_break_the_table() {
        assert_eq!(cell("a|b\n<script>"), r"a\|b &lt;script>");
    }
}
