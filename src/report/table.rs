//! Trials and the winner, for a terminal.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::bottleneck::Bottleneck;
use super::care::{Care, left_out};
use super::front::front_lines;
use super::gpus::{gpu_summary, together};
use super::host::host_words;
use super::row::{result_name, shown_metric, shown_numerics, shown_result, shown_together, sorted};
use crate::metric::Metric;
use crate::objective::Direction;
use crate::outcome::Estimate;
use crate::quantity::{show_bytes, show_duration, show_number};
use crate::space::Config;
use crate::study::{Best, Ranked, Study};
use crate::trial::{Purpose, Trial};

/// A rule below the names and nothing else: rows are short, and rules between them would hide the numbers.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Ties that are listed.
const TIES: usize = 5;

/// Rows of the longest table.
const ROWS: usize = 30;

/// The searched trials, the best first; `columns` is the width of the terminal.
pub fn table(study: &Study, columns: u16) -> String {
    let names: Vec<&str> = study.space.parameters().iter().map(crate::space::Parameter::name).collect();
    let trials = sorted(study);
    let has_outliers = trials.iter().any(|trial| !outliers(trial).is_empty());
    let has_memory = trials.iter().any(|trial| memory(trial).is_some());
    let has_activity = trials.iter().any(|trial| activity(trial).is_some());
    let mut header: Vec<String> = vec!["#".to_owned()];
    header.extend(names.iter().map(|name| (*name).to_owned()));
    header.push(result_name(&study.objective));
    header.extend(has_memory.then(|| "peak memory".to_owned()));
    header.extend(has_activity.then(|| "SM activity".to_owned()));
    header.extend(has_outliers.then(|| "left out".to_owned()));
    let marks = Marks::of(study);
    let mut rows: Vec<Vec<String>> = trials
        .iter()
        .take(ROWS)
        .map(|trial| {
            let settings = study.settings(&trial.config);
            let mut row = vec![marks.mark(study, trial)];
            row.extend(names.iter().map(|name| settings.get(name).map_or_else(|| "-".to_owned(), ToString::to_string)));
            row.push(shown_result(&study.objective, trial));
            row.extend(has_memory.then(|| memory(trial).map(show_bytes).unwrap_or_default()));
            row.extend(has_activity.then(|| activity(trial).unwrap_or_default()));
            row.extend(has_outliers.then(|| outliers(trial)));
            row
        })
        .collect();
    shorten_column(&header, &mut rows, names.len() + 1, columns);
    let mut text = laid_out(header, rows, names.len()).to_string();
    if trials.len() > ROWS {
        let _ = write!(text, "\n... and {} more in trials.csv", trials.len() - ROWS);
    }
    text
}

/// Which trials have a word behind their number.
struct Marks {
    /// The number of the winner's last searched trial.
    winner: Option<u32>,
    /// Where the result is a front, those of its configs.
    front: Vec<u32>,
}

impl Marks {
    fn of(study: &Study) -> Self {
        let last = |config: &Config| {
            let searched = study.history.of(config).filter(|trial| trial.purpose != Purpose::Confirm);
            searched.last().map(|trial| trial.number)
        };
        if study.objective.is_pareto() {
            let front = study.front();
            let winner = front.iter().find(|member| member.is_recommended).and_then(|member| last(&member.config));
            return Self { winner, front: front.iter().filter_map(|member| last(&member.config)).collect() };
        }
        Self { winner: study.best().and_then(|best| last(&best.winner.config)), front: Vec::new() }
    }

    fn mark(&self, study: &Study, trial: &Trial) -> String {
        let number = trial.number;
        if self.winner == Some(number) {
            format!("{number} best")
        } else if study.baseline.as_ref() == Some(&trial.config) {
            format!("{number} baseline")
        } else if self.front.contains(&number) {
            format!("{number} front")
        } else {
            number.to_string()
        }
    }
}

/// Settings and sizes to the right, so that digits stand below digits.
pub(super) fn laid_out(header: Vec<String>, rows: Vec<Vec<String>>, parameters: usize) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for row in rows {
        table.add_row(row.into_iter().enumerate().map(|(at, text)| {
            let is_number = (1..=parameters).contains(&at) || at > parameters + 1;
            Cell::new(text).set_alignment(if is_number { CellAlignment::Right } else { CellAlignment::Left })
        }));
    }
    table
}

/// Cuts the texts of one column so that the table fits; the whole reason of a failure is in trials.csv.
fn shorten_column(header: &[String], rows: &mut [Vec<String>], column: usize, columns: u16) {
    // A blank on each side, and one between columns.
    const PADDING: usize = 3;
    const NARROWEST: usize = 24;
    let width = |text: &String| text.chars().count();
    let widest = |at: usize| rows.iter().map(|row| width(&row[at])).chain([width(&header[at])]).max().unwrap_or(0);
    let others: usize = (0..header.len()).filter(|at| *at != column).map(|at| widest(at) + PADDING).sum();
    let room = usize::from(columns).saturating_sub(others + PADDING).max(NARROWEST);
    for row in rows.iter_mut().filter(|row| width(&row[column]) > room) {
        row[column] = row[column].chars().take(room - 1).chain(['…']).collect();
    }
}

fn memory(trial: &Trial) -> Option<u64> {
    trial.outcome.partial_measurement()?.peak_memory_bytes
}

/// How busy the multiprocessors of all GPUs were, where they tell.
fn activity(trial: &Trial) -> Option<String> {
    let share = together(&trial.outcome.partial_measurement()?.gpus, Metric::SmActive)?;
    Some(format!("{:.0} %", share.mean * 100.0))
}

fn outliers(trial: &Trial) -> String {
    left_out(trial.outcome.partial_measurement())
}

fn why_nothing(study: &Study) -> &'static str {
    if study.history.trials().is_empty() {
        "no probe has ended yet"
    } else {
        "none of the configs could be measured within the limits"
    }
}

/// The winner, its ties, its speed-up and why the search ended, in a few lines.
pub fn verdict(study: &Study) -> String {
    let mut text = String::new();
    match study.best() {
        Some(best) => winner_lines(study, &best, &mut text),
        None => {
            let _ = writeln!(text, "nothing feasible: {}", why_nothing(study));
            if let Some(trial) = study.history.trials().first() {
                let _ = writeln!(text, "          the first: {}", shown_result(&study.objective, trial));
            }
        }
    }
    for line in Bottleneck::of(study).iter().flat_map(Bottleneck::lines) {
        let _ = writeln!(text, "{line}");
    }
    for line in Care::of(study).lines() {
        let _ = writeln!(text, "{line}");
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
    let number = |entry: &Ranked| shown_entry(study, entry);
    let _ = writeln!(text, "best      {}", line(&best.winner.config));
    let _ = writeln!(text, "          {}{}", number(&best.winner), memory_words(best));
    if let Some(words) = host_words(&best.winner.measurement.host) {
        let _ = writeln!(text, "          {words}");
    }
    for (at, tie) in best.ties.iter().take(TIES).enumerate() {
        let label = if at == 0 { "tied      " } else { "          " };
        let _ = writeln!(text, "{label}{} ({})", line(&tie.config), number(tie));
    }
    if best.ties.len() > TIES {
        let _ = writeln!(text, "          and {} more, in best.json", best.ties.len() - TIES);
    }
    for (at, line) in gpu_summary(&best.winner.measurement.gpus).iter().enumerate() {
        let _ = writeln!(text, "{:10}{line}", if at == 0 { "GPU" } else { "" });
    }
    if let Some(line) = noise_line(best) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(numerics) = &best.winner.measurement.numerics {
        let _ = writeln!(text, "numerics  {}", shown_numerics(numerics));
    }
    match (&best.baseline, &best.speedup) {
        (Some(baseline), _) if baseline.config == best.winner.config && best.ties.is_empty() => {
            let _ = writeln!(text, "baseline  is the best already");
        }
        (Some(baseline), _) if baseline.config == best.winner.config => {
            let _ = writeln!(text, "baseline  cannot be told from the best, and costs least");
        }
        (Some(baseline), Some(speedup)) => {
            let what = match (study.objective.metric(), study.objective.direction()) {
                ("throughput", _) => "faster",
                _ if study.objective.weights().is_some() => "better",
                (_, Direction::Maximize) => "more",
                (_, Direction::Minimize) => "less",
            };
            let _ =
                writeln!(text, "speed-up  {} {what} than the baseline ({})", shown_ratio(*speedup), number(baseline));
        }
        (Some(baseline), None) => {
            let _ = writeln!(text, "baseline  {}", number(baseline));
        }
        (None, _) if study.baseline.is_some() => {
            let _ = writeln!(text, "speed-up  unknown: the baseline is not feasible");
        }
        _ => {}
    }
    for line in front_lines(study, best) {
        let _ = writeln!(text, "{line}");
    }
}

/// What counts of a config, over all its trials.
fn shown_entry(study: &Study, entry: &Ranked) -> String {
    if study.objective.goals().len() < 2 {
        return shown_metric(study.objective.metric(), entry.estimate, &entry.measurement);
    }
    let numbers = study.parts(&entry.config).iter().map(|part| Some(part.estimate)).collect::<Vec<_>>();
    shown_together(&study.objective, Some(entry.estimate), &numbers, &entry.measurement)
}

/// A word on measurements that vary so much that little can be told apart.
fn noise_line(best: &Best) -> Option<String> {
    const NOISY: f64 = 0.1;
    let half = best.winner.estimate.relative_half_width().filter(|half| *half > NOISY)?;
    Some(format!("noise     measurements vary by {:.0} %: is something else using this machine?", half * 100.0))
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
