//! Trials and the winner, for a terminal.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::row::{shown_estimate, shown_result, sorted, unit};
use crate::objective::Direction;
use crate::outcome::Estimate;
use crate::quantity::{show_bytes, show_duration, show_number};
use crate::space::Config;
use crate::study::{Best, Ranked, Study};
use crate::trial::Trial;

/// A rule below the names and nothing else: rows are short, and rules between them would hide the numbers.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Rows of the longest table.
const ROWS: usize = 30;

/// The searched trials, the best first, as wide as the terminal allows; `columns` is its width.
pub fn table(study: &Study, columns: u16) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    let names = || study.space.parameters().iter().map(crate::space::Parameter::name);
    let has_memory = study.history.searched().any(|trial| memory(trial).is_some());
    let metric = study.objective.metric();
    let header = std::iter::once("#").chain(names()).chain([metric]).chain(has_memory.then_some("peak memory"));
    table.set_header(header.map(Cell::new).collect::<Vec<_>>());
    let trials = sorted(study);
    let winner = study.best().map(|best| best.winner.config);
    for trial in trials.iter().take(ROWS) {
        let settings = study.settings(&trial.config);
        let is_winner = winner.as_ref() == Some(&trial.config);
        let is_baseline = study.baseline.as_ref() == Some(&trial.config);
        let mark = match (is_winner, is_baseline) {
            (true, _) => format!("{} best", trial.number),
            (_, true) => format!("{} baseline", trial.number),
            _ => trial.number.to_string(),
        };
        let mut cells = vec![Cell::new(mark)];
        cells.extend(names().map(|name| {
            let value = settings.get(name).map_or_else(|| "-".to_owned(), ToString::to_string);
            Cell::new(value).set_alignment(CellAlignment::Right)
        }));
        cells.push(Cell::new(shortened(&shown_result(&study.objective, trial))));
        if has_memory {
            cells
                .push(Cell::new(memory(trial).map(show_bytes).unwrap_or_default()).set_alignment(CellAlignment::Right));
        }
        table.add_row(cells);
    }
    let mut text = table.to_string();
    if trials.len() > ROWS {
        let _ = write!(text, "\n... and {} more in trials.csv", trials.len() - ROWS);
    }
    text
}

fn why_nothing(study: &Study) -> &'static str {
    if study.history.trials().is_empty() {
        "no probe has ended yet"
    } else {
        "none of the configs could be measured within the limits"
    }
}

/// The whole reason of a failure is in the journal and in trials.csv.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 46;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}

fn memory(trial: &Trial) -> Option<u64> {
    trial.outcome.measurement()?.peak_memory_bytes
}

/// The winner, its ties, its speed-up and why the search ended, in a few lines.
pub fn verdict(study: &Study) -> String {
    let mut text = String::new();
    match study.best() {
        Some(best) => winner_lines(study, &best, &mut text),
        None => {
            let _ = writeln!(text, "nothing feasible: {}", why_nothing(study));
        }
    }
    let searched = study.history.searched().count();
    let confirmed = study.history.trials().len() - searched;
    let _ = write!(
        text,
        "probes    {searched}{} in {}; {}",
        if confirmed > 0 { format!(", and {confirmed} to confirm,") } else { String::new() },
        show_duration(study.elapsed),
        study.stopped
    );
    text
}

fn winner_lines(study: &Study, best: &Best, text: &mut String) {
    let line = |config: &Config| study.settings(config).line();
    let number = |entry: &Ranked| shown_estimate(entry.estimate, unit(&study.objective, &entry.measurement));
    let _ = writeln!(text, "best      {}", line(&best.winner.config));
    let _ = writeln!(text, "          {}{}", number(&best.winner), memory_words(best));
    for (at, tie) in best.ties.iter().enumerate() {
        let label = if at == 0 { "tied      " } else { "          " };
        let _ = writeln!(text, "{label}{} ({})", line(&tie.config), number(tie));
    }
    match (&best.baseline, &best.speedup) {
        (Some(baseline), Some(_)) if baseline.config == best.winner.config => {
            let _ = writeln!(text, "baseline  is the best already");
        }
        (Some(baseline), Some(speedup)) => {
            let better = if study.objective.direction() == Direction::Maximize { "more" } else { "less" };
            let what = if study.objective.metric() == "throughput" { "faster" } else { better };
            let _ =
                writeln!(text, "speed-up  {} {what} than the baseline ({})", shown_ratio(*speedup), number(baseline));
        }
        _ if study.baseline.is_some() => {
            let _ = writeln!(text, "speed-up  unknown: the baseline is not feasible");
        }
        _ => {}
    }
}

fn memory_words(best: &Best) -> String {
    let measurement = &best.winner.measurement;
    match (measurement.peak_memory_bytes, measurement.memory_headroom()) {
        (Some(peak), Some(headroom)) => {
            format!(", {} of memory at the peak ({} % free)", show_bytes(peak), show_number(headroom * 100.0))
        }
        (Some(peak), None) => format!(", {} of memory at the peak", show_bytes(peak)),
        _ => String::new(),
    }
}

/// A ratio with its interval: `1.42x (1.38 to 1.47)`.
pub(super) fn shown_ratio(ratio: Estimate) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.2}x ({low:.2} to {high:.2})", ratio.value),
        _ => format!("{:.2}x", ratio.value),
    }
}
