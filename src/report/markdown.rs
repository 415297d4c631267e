//! Writes a study as Markdown, for a CI step summary.

use std::fmt::Write as _;

use super::best::BestReport;
use super::care::left_out;
use super::escape::{as_markdown, fence};
use super::front::{Rows, same_in_all};
use super::row::{result_name, shown_result, sorted};
use super::table::verdict;
use crate::machine::Device;
use crate::model::quantity::show_bytes;
use crate::search::Study;

/// Writes the verdict with further facts about the best config, the command, and the table of trials.
pub fn summary(study: &Study, device: &Device, name: &str, best: Option<&BestReport>) -> String {
    let mut text = format!(
        "# gputune: {}\n\nDevice: {} (driver: {})\n\n",
        as_markdown(name),
        as_markdown(&device.name),
        as_markdown(&device.driver)
    );
    let more: String = best.iter().flat_map(|best| best.more_lines()).map(|line| format!("\n{line}")).collect();
    let verdict = verdict(study) + &more;
    let around = fence(&verdict);
    let _ = writeln!(text, "{around}text\n{verdict}\n{around}\n");
    if let Some(command) = best.and_then(|best| best.for_sharing().shown_command()) {
        let fence = fence(&command);
        let _ = writeln!(text, "{fence}sh\n{command}\n{fence}\n");
    }
    front(study, &mut text);
    let names: Vec<&str> = study.space.parameters().iter().map(crate::model::Parameter::name).collect();
    let _ = writeln!(
        text,
        "| # | {} | {} | peak memory | left out |",
        names.join(" | "),
        as_markdown(&result_name(&study.objective))
    );
    let _ = writeln!(text, "|--:|{}---|--:|---|", "--:|".repeat(names.len()));
    for trial in sorted(study) {
        let settings = study.settings(&trial.config);
        let values = names
            .iter()
            .map(|name| settings.get(name).map_or_else(|| "-".to_owned(), |value| as_markdown(&value.to_string())));
        let memory = trial.outcome.measurement().and_then(|measurement| measurement.memory.peak_bytes);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            trial.number,
            values.collect::<Vec<_>>().join(" | "),
            as_markdown(&shown_result(&study.objective, trial)),
            memory.map(show_bytes).unwrap_or_default(),
            as_markdown(&left_out(trial.outcome.measurement()))
        );
    }
    text
}

/// Writes the front as a separate table, if the objective is a front.
fn front(study: &Study, text: &mut String) {
    if !study.objective.is_pareto() {
        return;
    }
    let front = study.front();
    let Rows { header, rows, .. } = Rows::of(study, &front);
    let line = |row: &[String]| row.iter().map(|text| as_markdown(text)).collect::<Vec<_>>().join(" | ");
    let _ = writeln!(text, "## Front\n\n| {} |\n|---|{}", line(&header), "--:|".repeat(header.len() - 1));
    for row in rows {
        let _ = writeln!(text, "| {} |", line(&row));
    }
    if let Some(same) = same_in_all(study, &front) {
        let _ = writeln!(text, "\nIn all: {}", as_markdown(&same));
    }
    let _ = writeln!(text, "\n## Trials\n");
}
