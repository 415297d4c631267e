//! Writes a comparison of two studies for the terminal, as Markdown and as JSON.

use std::fmt::Write as _;

use super::compare::{BestOfSide, Both, Change, Comparison, SideReport};
use super::escape::{as_markdown, plain};
use super::gpus::gpu_summary;
use super::layout::{Column, lay_out};
use super::row::{shown_metric, shown_ratio};
use super::screen::{Screen, Tone, wrap};
use crate::model::quantity::{show_bytes, show_duration};
use crate::model::{Direction, Estimate, Measurement};

/// The most rows of a table.
const ROWS: usize = 24;
/// The most lost configs in the list.
const LOST: usize = 6;

pub(super) fn json(comparison: &Comparison) -> String {
    // Numbers that are not finite become null, so serialising cannot fail.
    serde_json::to_string_pretty(comparison).unwrap_or_default() + "\n"
}

pub(super) fn terminal(comparison: &Comparison, screen: Screen) -> String {
    let mut parts = vec![sides(comparison, screen)];
    let (tone, words) = verdict(comparison);
    parts.push(wrap(&words, screen.columns).iter().map(|line| screen.paint(tone, line)).collect::<Vec<_>>().join("\n"));
    if !comparison.configs.is_empty() {
        parts.push(configs(comparison, screen));
    }
    let notes: Vec<String> = notes(comparison).iter().flat_map(|note| bullet(note, screen.columns)).collect();
    if !notes.is_empty() {
        parts.push(notes.join("\n"));
    }
    parts.join("\n\n") + "\n"
}

fn bullet(note: &str, columns: usize) -> Vec<String> {
    let lines = wrap(note, columns.saturating_sub(2));
    lines.into_iter().enumerate().map(|(at, line)| format!("{} {line}", if at == 0 { "-" } else { " " })).collect()
}

/// Returns the facts about both sides, as rows to compare.
pub(super) fn rows(comparison: &Comparison) -> Vec<(&'static str, [String; 2])> {
    let both = |text: &dyn Fn(&SideReport) -> String| [text(&comparison.a), text(&comparison.b)].map(|it| plain(&it));
    let best = |text: &dyn Fn(&BestOfSide) -> String| {
        both(&|side| side.best.as_ref().map_or_else(|| "nothing feasible".to_owned(), text))
    };
    let duration = |side: &SideReport| {
        show_duration(std::time::Duration::try_from_secs_f64(side.elapsed_s.max(0.0)).unwrap_or_default())
    };
    let waits = |share: f64| format!("waits {:.0} % of a step", share * 100.0);
    let of_it = |ratio| format!("the best is {} of it", shown_ratio(ratio));
    let mut rows = vec![
        ("search", both(&|side| side.name.clone())),
        ("device", both(&|side| side.device.clone())),
        ("driver", both(&|side| side.driver.clone())),
        ("gputune", both(&|side| side.gputune_version.clone())),
        ("probes", both(&|side| format!("{}, {} failed, in {}", side.probes, side.failed, duration(side)))),
        ("ended", both(&|side| side.stopped_because.clone())),
        ("best", best(&|best| best.config.line())),
        ("", best(&|best| best.estimate.map_or_else(String::new, |it| shown(comparison, it, &best.unit)))),
        ("memory", best(&|best| memory(best))),
        ("data", best(&|best| best.data_wait.map_or_else(String::new, waits))),
        ("GPU", best(&|best| gpu_summary(&best.gpus).join("; "))),
        ("baseline", both(&|side| side.over_baseline.map_or_else(String::new, of_it))),
    ];
    let is_needed = |name: &str, [a, b]: &[String; 2]| {
        let says_nothing = |text: &String| text.is_empty() || text == "nothing feasible";
        let is_dull = matches!(name, "driver" | "gputune" | "ended") && a == b;
        name == "best" || !(is_dull || says_nothing(a) && says_nothing(b))
    };
    rows.retain(|(name, texts)| is_needed(name, texts));
    rows
}

pub(super) fn shown(comparison: &Comparison, estimate: Estimate, unit: &str) -> String {
    let measurement = Measurement { unit: unit.to_owned(), ..Measurement::default() };
    shown_metric(&comparison.goal.metric, estimate, &measurement)
}

fn memory(best: &BestOfSide) -> String {
    let Some(peak) = best.peak_memory_bytes else { return String::new() };
    let free = best.memory_headroom.map(|share| format!(" ({:.0} % free)", share * 100.0)).unwrap_or_default();
    format!("{}{free}", show_bytes(peak))
}

/// Writes two columns of text, each wrapped within its own width.
fn sides(comparison: &Comparison, screen: Screen) -> String {
    const LABEL: usize = 10;
    const GAP: usize = 2;
    let column = screen.columns.saturating_sub(LABEL + GAP) / 2;
    let mut columns = vec![Column::new("", false, 0), Column::new("A", false, 0), Column::new("B", false, 0)];
    for (name, [a, b]) in rows(comparison) {
        let (a, b) = (wrap(&a, column.saturating_sub(1)), wrap(&b, column.saturating_sub(1)));
        let is_best = name == "best";
        for line in 0..a.len().max(b.len()) {
            let label = if line == 0 { name } else { "" };
            let tone = if is_best { Tone::Good } else { Tone::Plain };
            let cell = |lines: &[String]| (lines.get(line).cloned().unwrap_or_default(), tone);
            let cells = [(label.to_owned(), Tone::Faint), cell(&a), cell(&b)];
            columns.iter_mut().zip(cells).for_each(|(column, cell)| column.cells.push(cell));
        }
    }
    lay_out(columns, screen).text
}

pub(super) fn verdict(comparison: &Comparison) -> (Tone, String) {
    let metric = &comparison.goal.metric;
    let Some((ratio, change)) = comparison.speedup.zip(comparison.change) else {
        let words = match (&comparison.a.best, &comparison.b.best) {
            (None, None) => "neither found anything feasible".to_owned(),
            (None, Some(_)) => "only B found anything feasible".to_owned(),
            (Some(_), None) => "only A found anything feasible".to_owned(),
            (Some(_), Some(_)) => format!("the {metric} of the two cannot be compared as a ratio"),
        };
        return (Tone::Doubtful, words);
    };
    let times = shown_ratio(ratio);
    let words = match (metric.as_str(), comparison.goal.direction) {
        ("throughput", _) => format!("the best of B is {times} as fast as the best of A"),
        (_, Direction::Maximize) => format!("the best of B has {times} the {metric} of the best of A"),
        (_, Direction::Minimize) => format!("the best of B is {times} better in {metric} than the best of A"),
    };
    let [better, worse] = if metric == "throughput" { ["faster", "slower"] } else { ["better", "worse"] };
    match change {
        Change::Better => (Tone::Good, format!("{words}: {better} beyond the noise")),
        Change::Worse => (Tone::Bad, format!("{words}: {worse} beyond the noise")),
        Change::WithinNoise => (Tone::Note, format!("{words}: the difference is within the noise")),
        Change::Unknown => (Tone::Doubtful, format!("{words}; its noise is not known")),
    }
}

pub(super) fn word(change: Change) -> (&'static str, Tone) {
    match change {
        Change::Better => ("better", Tone::Good),
        Change::Worse => ("worse", Tone::Bad),
        Change::WithinNoise => ("same", Tone::Faint),
        Change::Unknown => ("?", Tone::Doubtful),
    }
}

/// Returns the configs to show, the largest gains and losses if there are too many, and the number of hidden configs.
pub(super) fn most_changed(configs: &[Both]) -> (Vec<&Both>, usize) {
    if configs.len() <= ROWS {
        return (configs.iter().collect(), 0);
    }
    let half = ROWS / 2;
    let ends = configs.iter().take(half).chain(configs.iter().skip(configs.len() - half));
    (ends.collect(), configs.len() - 2 * half)
}

fn configs(comparison: &Comparison, screen: Screen) -> String {
    const MOST: u32 = 1000;
    let (shown, hidden) = most_changed(&comparison.configs);
    let mut names: Vec<&str> = Vec::new();
    for both in &comparison.configs {
        names.extend(both.config.iter().map(|(name, _)| name).filter(|name| !names.contains(name)).collect::<Vec<_>>());
    }
    let values = |name: &str| {
        let value = |both: &Both| both.config.get(name).map(ToString::to_string).unwrap_or_default();
        let mut values: Vec<String> = comparison.configs.iter().map(value).collect();
        values.sort_unstable();
        values.dedup();
        u32::try_from(values.len()).unwrap_or(MOST)
    };
    let same: Vec<_> = names.iter().copied().filter(|name| comparison.configs.len() > 1 && values(name) == 1).collect();
    names.retain(|name| !same.contains(name));
    let mut columns = vec![Column::new("B to A", false, 0), Column::new("", false, 0)];
    columns.extend(names.iter().map(|name| Column::new(plain(name), true, MOST.saturating_sub(values(name)).max(2))));
    columns.extend(["A", "B"].map(|name| Column::new(name, true, MOST + 1)));
    if comparison.configs.iter().any(|both| !both.marks.is_empty()) {
        columns.push(Column::new("", false, MOST + 2));
    }
    for both in &shown {
        let (word, tone) = word(both.change);
        let mut cells = vec![(shown_ratio(both.ratio), Tone::Plain), (word.to_owned(), tone)];
        let value = |name: &&str| both.config.get(name).map_or_else(|| "-".to_owned(), |it| plain(&it.to_string()));
        cells.extend(names.iter().map(|name| (value(name), Tone::Plain)));
        cells.extend([both.a, both.b].map(|estimate| (self::shown(comparison, estimate, ""), Tone::Plain)));
        cells.push((both.marks.join(", "), Tone::Note));
        columns.iter_mut().zip(cells).for_each(|(column, cell)| column.cells.push(cell));
    }
    let laid_out = lay_out(columns, screen);
    let mut text = laid_out.text;
    let mut below = Vec::new();
    if hidden > 0 {
        below.push(format!("... and {hidden} between these, in --format json"));
    }
    let settings = comparison.configs.first().map(|both| &both.config);
    let same: Vec<String> = same.iter().filter_map(|name| Some(format!("{name}={}", settings?.get(name)?))).collect();
    if !same.is_empty() {
        below.push(format!("in all: {}", plain(&same.join(" "))));
    }
    let missing: Vec<&str> = laid_out.left_out.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    if !missing.is_empty() {
        below.push(format!("no room for {}: see --format json", missing.join(", ")));
    }
    for line in below.iter().flat_map(|line| wrap(line, screen.columns)) {
        let _ = write!(text, "\n{}", screen.paint(Tone::Faint, &line));
    }
    text
}

/// Returns notes on what the table does not show.
pub(super) fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes: Vec<String> = comparison.differences.iter().map(|difference| plain(difference)).collect();
    if comparison.configs.is_empty() {
        notes.push("no config was measured in both".to_owned());
    }
    for lost in comparison.lost.iter().take(LOST) {
        let (config, side, why) = (lost.config.line(), lost.failed_in, &lost.reason);
        notes.push(plain(&format!("{config} was measured, but not in {side}: {why}")));
    }
    if comparison.lost.len() > LOST {
        notes.push(format!("{} more configs failed in one alone: see --format json", comparison.lost.len() - LOST));
    }
    match comparison.alone {
        (0, 0) => {}
        (a, b) => notes.push(format!("{a} configs were probed in A alone, and {b} in B alone")),
    }
    notes
}

pub(super) fn markdown(comparison: &Comparison) -> String {
    let mut text =
        format!("# gputune: {} and {}\n\n", as_markdown(&comparison.a.name), as_markdown(&comparison.b.name));
    let _ = writeln!(text, "**{}**\n", as_markdown(&verdict(comparison).1));
    let _ = writeln!(text, "| | A | B |\n|---|---|---|");
    for (name, [a, b]) in rows(comparison) {
        let _ = writeln!(text, "| {name} | {} | {} |", as_markdown(&a), as_markdown(&b));
    }
    if !comparison.configs.is_empty() {
        let _ = writeln!(text, "\n| B to A | | config | A | B | |\n|---|---|---|--:|--:|---|");
        let (shown, hidden) = most_changed(&comparison.configs);
        for both in shown {
            let numbers = [both.a, both.b].map(|estimate| as_markdown(&self::shown(comparison, estimate, "")));
            let [a, b] = numbers;
            let config = as_markdown(&both.config.line());
            let (ratio, marks) = (shown_ratio(both.ratio), both.marks.join(", "));
            let _ = writeln!(text, "| {ratio} | {} | {config} | {a} | {b} | {marks} |", word(both.change).0);
        }
        if hidden > 0 {
            let _ = writeln!(text, "\n{hidden} more are between these.");
        }
    }
    let notes = notes(comparison);
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "- {}", as_markdown(&note));
    }
    text
}
