//! Writes the trials and the winner for a terminal.

use std::fmt::Write as _;

use super::bottleneck::Bottleneck;
use super::care::{Care, left_out};
use super::ending::{comparison_line, few_configs, settings_lines};
use super::escape::plain;
use super::front::front_lines;
use super::gpus::{gpu_summary, host_words};
use super::layout::{Column, lay_out};
use super::marks::Marks;
use super::row::{
    UNSTABLE, result_name, shown_cell, shown_metric, shown_numerics, shown_result, shown_together, sorted,
};
use super::screen::{Screen, Tone, wrap};
use crate::model::{
    Config, Measurement, Metric, Parameter, Settings, Trial,
    metric::together,
    quantity::{show_bytes, show_duration, show_number},
};
use crate::search::{Best, Ranked, Study};

/// The most ties in the list.
const TIES: usize = 5;

/// The most rows of a table.
const ROWS: usize = 30;

/// Writes the searched trials, the best first, in the width of a screen. Columns that did not fit are listed below, with the
/// reasons of failed trials.
///
/// If the study has many trials, only the best and the baseline are shown.
pub fn table(study: &Study, screen: impl Into<Screen>) -> String {
    let screen = screen.into();
    let trials = sorted(study);
    if trials.is_empty() {
        return String::new();
    }
    let mut shown: Vec<&Trial> = trials.iter().take(ROWS).copied().collect();
    let is_baseline = |trial: &&Trial| study.baseline.as_ref() == Some(&trial.config);
    if !shown.iter().any(is_baseline) {
        shown.extend(trials.iter().skip(ROWS).copied().find(|trial| is_baseline(trial)));
    }
    let marks = Marks::of(study);
    let (parameters, same) = parameters(study, &shown, screen);
    let mut columns = vec![Column::new("#", true, 0), Column::new("", false, 0)];
    columns.extend(parameters.iter().map(|&(name, dispensable)| Column::new(plain(name), true, dispensable)));
    let unit = one_unit(study, &trials);
    columns.push(Column::new(unit.clone().unwrap_or_else(|| result_name(&study.objective)), false, 0));
    let extras: Vec<&Extra> = EXTRAS.iter().filter(|extra| trials.iter().any(|t| (extra.text)(t).is_some())).collect();
    columns.extend(extras.iter().map(|extra| Column::new(extra.header, true, extra.dispensable)));
    for trial in &shown {
        let settings = study.settings(&trial.config);
        let (mark, tone) = marks.mark(study, trial);
        let values = parameters
            .iter()
            .map(|(name, _)| settings.get(name).map_or_else(|| "-".to_owned(), |value| plain(&value.to_string())));
        let mut cells = vec![(trial.number.to_string(), Tone::Plain), (mark, tone)];
        cells.extend(values.map(|text| (text, Tone::Plain)));
        let is_whole = tone != Tone::Bad && tone != Tone::Faint;
        let tone = if is_whole { Tone::Plain } else { Tone::Faint };
        cells.push((shown_cell(&study.objective, trial, unit.is_some()), tone));
        cells.extend(extras.iter().map(|extra| ((extra.text)(trial).unwrap_or_default(), Tone::Plain)));
        columns.iter_mut().zip(cells).for_each(|(column, cell)| column.cells.push(cell));
    }
    let laid_out = lay_out(columns, screen);
    let mut text = laid_out.text;
    let mut below = Vec::new();
    let is_parameter = |header: &&str| parameters.iter().any(|(name, _)| name == header);
    let missing: Vec<&str> = laid_out.left_out.iter().map(String::as_str).filter(is_parameter).collect();
    if !same.is_empty() {
        below.push((Tone::Faint, format!("in all: {}", same.join(" "))));
    }
    if !missing.is_empty() {
        below.push((Tone::Faint, format!("no room for {}: see trials.csv", missing.join(", "))));
    }
    if trials.len() > shown.len() {
        let hidden = trials.iter().filter(|trial| shown.iter().all(|known| known.number != trial.number));
        let failed = hidden.filter(|trial| trial.outcome.measurement().is_none()).count();
        let failed = if failed > 0 { format!(" ({failed} failed)") } else { String::new() };
        below.push((Tone::Plain, format!("... and {} more{failed} in trials.csv", trials.len() - shown.len())));
    }
    if shown.iter().any(|trial| trial.outcome.measurement().is_some_and(|m| m.timing.is_unstable)) {
        below.push((Tone::Faint, format!("{UNSTABLE} measuring ended before the interval was as narrow as asked")));
    }
    for (tone, line) in below {
        for line in wrap(&line, screen.columns) {
            let _ = write!(text, "\n{}", screen.paint(tone, &line));
        }
    }
    for line in super::marks::reasons(study, &trials) {
        let _ = write!(text, "\n{}", screen.lay_out_at(super::marks::LABEL, &line, Tone::Bad));
    }
    text
}

/// A column that is shown if any trial has a value for it.
struct Extra {
    header: &'static str,
    dispensable: u32,
    text: fn(&Trial) -> Option<String>,
}

/// Further columns, the most important first.
const EXTRAS: &[Extra] = &[
    Extra { header: "peak memory", dispensable: 0, text: |trial| memory(trial).map(show_bytes) },
    Extra { header: "free", dispensable: 1, text: free },
    Extra { header: "SM activity", dispensable: 2000, text: activity },
    Extra { header: "waits for data", dispensable: 2001, text: data_wait },
    Extra { header: "left out", dispensable: 2002, text: outliers },
];

/// Returns the parameters that get a column, each with its rank for leaving it out. Parameters that are equal in all trials go
/// first and are listed below; then parameters with the fewest settings go.
fn parameters<'s>(study: &'s Study, shown: &[&Trial], screen: Screen) -> (Vec<(&'s str, u32)>, Vec<String>) {
    /// A rank below the ranks of columns that are no parameters.
    const MOST: u32 = 1000;
    let names = study.space.parameters().iter().map(Parameter::name);
    let counted: Vec<(&str, usize)> = names
        .enumerate()
        .map(|(at, name)| {
            let mut levels: Vec<_> = shown.iter().map(|trial| trial.config.level(at)).collect();
            levels.sort_unstable();
            levels.dedup();
            (name, levels.len())
        })
        .collect();
    // With enough room, a few columns with equal values do no harm.
    const FEW: usize = 4;
    let fits = counted.len() <= FEW || counted.len() * 14 + 50 <= screen.columns;
    let is_same = |count: usize| count == 1 && shown.len() > 1 && !fits;
    let settings = shown.first().map(|trial| study.settings(&trial.config)).unwrap_or_default();
    let same = counted.iter().filter(|(_, count)| is_same(*count));
    let set = |name: &str| settings.get(name).filter(|value| !value.is_as_it_is());
    let same = same.filter_map(|(name, _)| Some(plain(&format!("{name}={}", set(name)?)))).collect();
    let kept = counted.iter().filter(|(_, count)| !is_same(*count));
    let dispensable = |count: usize| MOST.saturating_sub(u32::try_from(count).unwrap_or(MOST)).max(2);
    (kept.map(|&(name, count)| (name, dispensable(count))).collect(), same)
}

/// Returns the unit of all throughputs, if throughput is the only goal and the unit is the same.
fn one_unit(study: &Study, trials: &[&Trial]) -> Option<String> {
    if study.objective.metric() != "throughput" || study.objective.goals().len() > 1 {
        return None;
    }
    let mut units = trials.iter().filter_map(|trial| Some(trial.outcome.measurement()?.unit.as_str()));
    let first = units.next().filter(|unit| !unit.is_empty())?;
    units.all(|unit| unit == first).then(|| plain(first))
}

fn memory(trial: &Trial) -> Option<u64> {
    trial.outcome.measurement()?.memory.peak_bytes
}

fn free(trial: &Trial) -> Option<String> {
    let headroom = trial.outcome.measurement()?.memory_headroom()?;
    Some(format!("{:.0} %", headroom * 100.0))
}

fn data_wait(trial: &Trial) -> Option<String> {
    Some(format!("{:.0} %", super::row::data_wait(trial.outcome.measurement()?)? * 100.0))
}

/// Returns how busy the multiprocessors of all GPUs were, if the GPUs report it.
fn activity(trial: &Trial) -> Option<String> {
    let share = together(&trial.outcome.measurement()?.machine.gpus, Metric::SmActive)?;
    Some(format!("{:.0} %", share.mean * 100.0))
}

fn outliers(trial: &Trial) -> Option<String> {
    Some(plain(&left_out(trial.outcome.measurement()))).filter(|text| !text.is_empty())
}

fn why_nothing(study: &Study) -> &'static str {
    if study.history.trials().is_empty() {
        "no probe has ended yet"
    } else {
        "none of the configs could be measured within the limits"
    }
}

/// Describes the winner, its ties, its speedup and why the search ended, with all details.
pub fn verdict(study: &Study) -> String {
    let mut text = String::new();
    match study.best() {
        Some(best) => winner_lines(study, &best, &mut text),
        None => nothing_line(study, &mut text),
    }
    let slots = study.side_by_side.iter().map(|line| format!("slots     {line}"));
    let limit = Bottleneck::of(study).iter().flat_map(Bottleneck::lines).collect::<Vec<_>>();
    for line in limit.into_iter().chain(slots).chain(Care::of(study).lines()).chain(few_configs(study)) {
        let _ = writeln!(text, "{line}");
    }
    text + &probes_line(study)
}

fn nothing_line(study: &Study, text: &mut String) {
    let _ = writeln!(text, "nothing feasible: {}", why_nothing(study));
    if let Some(trial) = study.history.trials().first() {
        let _ = writeln!(text, "          the first: {}", shown_result(&study.objective, trial));
    }
}

/// Says how many probes and rounds there were, how long they took, and why the search ended.
fn probes_line(study: &Study) -> String {
    let searched = study.history.count_searched();
    let configs = if searched == 1 { "1 config".to_owned() } else { format!("{searched} configs") };
    let rounds = match study.rounds() {
        0 => String::new(),
        1 => " and 1 round of comparisons".to_owned(),
        rounds => format!(" and {rounds} rounds of comparisons"),
    };
    format!("tried     {configs}{rounds} in {}; {}", show_duration(study.elapsed), study.stopped)
}

/// Returns the lines of [`verdict`] that a user reads first.
pub(super) fn brief(study: &Study) -> String {
    let mut text = String::new();
    match study.best() {
        Some(best) => best_lines(study, &best, &mut text),
        None => nothing_line(study, &mut text),
    }
    for line in Bottleneck::of(study).iter().flat_map(Bottleneck::limit_lines).chain(few_configs(study)) {
        let _ = writeln!(text, "{line}");
    }
    text + &probes_line(study)
}

fn best_lines(study: &Study, best: &Best, text: &mut String) {
    let number = |entry: &Ranked| shown_entry(study, entry);
    let _ = writeln!(text, "best      {}", study.settings(&best.winner.config).line());
    let _ = writeln!(text, "          {}{}", number(&best.winner), memory_words(best));
    let numerics = best.winner.measurement.numerics.as_ref();
    let numerics = numerics.map(|numerics| format!("numerics  {}", shown_numerics(numerics)));
    let run = study.whole_run(best).map(|run| format!("run       {}", run.words()));
    let largest = largest_batch_line(study, &best.winner.config);
    let unverified = settings_lines(study, best).into_iter().find(|line| line.contains("not verified"));
    let shown =
        numerics.into_iter().chain(comparison_line(study, best, &number)).chain(run).chain(largest).chain(unverified);
    for line in shown.chain(front_lines(study, best)) {
        let _ = writeln!(text, "{line}");
    }
}

fn winner_lines(study: &Study, best: &Best, text: &mut String) {
    let number = |entry: &Ranked| shown_entry(study, entry);
    let _ = writeln!(text, "best      {}", study.settings(&best.winner.config).line());
    let _ = writeln!(text, "          {}{}", number(&best.winner), memory_words(best));
    if let Some(words) = host_words(&best.winner.measurement.machine.host) {
        let _ = writeln!(text, "          {words}");
    }
    for (at, tie) in best.ties.iter().take(TIES).enumerate() {
        let label = if at == 0 { "tied      " } else { "          " };
        let _ = writeln!(text, "{label}{} ({})", tie_words(study, best, &tie.config), number(tie));
    }
    if best.ties.len() > TIES {
        let _ = writeln!(text, "          and {} more, in best.json", best.ties.len() - TIES);
    }
    for (at, line) in gpu_summary(&best.winner.measurement.machine.gpus).iter().enumerate() {
        let _ = writeln!(text, "{:10}{line}", if at == 0 { "GPU" } else { "" });
    }
    if let Some(numerics) = &best.winner.measurement.numerics {
        let _ = writeln!(text, "numerics  {}", shown_numerics(numerics));
    }
    if let Some(line) = comparison_line(study, best, &number) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(run) = study.whole_run(best) {
        let _ = writeln!(text, "run       {}", run.words());
    }
    if let Some(line) = largest_batch_line(study, &best.winner.config) {
        let _ = writeln!(text, "{line}");
    }
    for line in settings_lines(study, best) {
        let _ = writeln!(text, "{line}");
    }
    for line in front_lines(study, best) {
        let _ = writeln!(text, "{line}");
    }
}

/// Returns the settings of a tie; if they are long, only the settings that differ from the winner's.
fn tie_words(study: &Study, best: &Best, tie: &Config) -> String {
    const LONG: usize = 100;
    let settings = study.settings(tie);
    let whole = settings.line();
    if whole.len() <= LONG {
        return whole;
    }
    let winner = study.settings(&best.winner.config);
    let differing: Settings = settings
        .iter()
        .filter(|(name, value)| winner.get(name) != Some(*value))
        .map(|(name, value)| (name, value.clone()))
        .collect();
    format!("{}, else as the best", differing.line())
}

/// Formats the objective's value of a config, over all its trials.
fn shown_entry(study: &Study, entry: &Ranked) -> String {
    if study.objective.goals().len() < 2 {
        return shown_metric(study.objective.metric(), entry.estimate, &entry.measurement);
    }
    let numbers = study.parts(&entry.config).iter().map(|part| Some(part.estimate)).collect::<Vec<_>>();
    shown_together(&study.objective, Some(entry.estimate), &numbers, &entry.measurement)
}

/// Returns the line about the largest batch, from the run that trained on it if there was one. Without such a run, only the memory
/// of a device is worth the line.
fn largest_batch_line(study: &Study, config: &Config) -> Option<String> {
    let runs = || study.history.of(config).filter_map(|trial| trial.outcome.measurement());
    let trained = runs().find(|run| run.has_trained_largest());
    let on_device = || runs().find(|run| run.facts.text("device").is_some_and(|device| device != "cpu"));
    trained.or_else(on_device).and_then(Measurement::largest_batch_words).map(|words| format!("batches   {words}"))
}

fn memory_words(best: &Best) -> String {
    let measurement = &best.winner.measurement;
    let is_on_cpu = measurement.facts.text("device") == Some("cpu");
    let memory = if is_on_cpu { "host memory" } else { "memory" };
    match (measurement.memory.peak_bytes, measurement.memory_headroom()) {
        (Some(peak), Some(headroom)) => {
            format!(", {} of {memory} at the peak ({} % free)", show_bytes(peak), show_number(headroom * 100.0))
        }
        (Some(peak), None) => format!(", {} of {memory} at the peak", show_bytes(peak)),
        _ => String::new(),
    }
}
