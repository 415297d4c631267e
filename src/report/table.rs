//! Writes the trials for a terminal, each with a word for its rank, and why trials failed.

use std::fmt::Write as _;

use super::care::left_out;
use super::escape::plain;
use super::layout::{Column, lay_out};
use super::row::{UNSTABLE, data_wait, result_name, shown_cell, shown_outcome, sorted};
use super::screen::{Screen, Tone, wrap};
use crate::model::quantity::show_bytes;
use crate::model::{Config, Judgement, Measurement, Metric, Outcome, Parameter, Trial, metric::together};
use crate::search::Study;

/// The most rows of a table.
const ROWS: usize = 30;

/// Writes the searched trials, the best first, in a screen's width; then columns without room, and failures' reasons.
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
    let cell_of = |extra: &Extra, trial: &Trial| trial.outcome.measurement().and_then(extra.text);
    let extras: Vec<&Extra> =
        EXTRAS.iter().filter(|it| trials.iter().any(|trial| cell_of(it, trial).is_some())).collect();
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
        cells.extend(extras.iter().map(|extra| (cell_of(extra, trial).unwrap_or_default(), Tone::Plain)));
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
    for line in reasons(study, &trials) {
        let _ = write!(text, "\n{}", screen.lay_out_at(LABEL, &line, Tone::Bad));
    }
    text
}

/// A column that is shown if any trial has a value for it.
struct Extra {
    header: &'static str,
    /// The rank for leaving the column out, see `Column::dispensable`.
    dispensable: u32,
    text: fn(&Measurement) -> Option<String>,
}

/// Further columns, the most important first.
const EXTRAS: &[Extra] = &[
    Extra { header: "peak memory", dispensable: 0, text: |m| m.memory.peak_bytes.map(show_bytes) },
    Extra { header: "free", dispensable: 1, text: |m| m.memory_headroom().map(percent) },
    Extra { header: "SM activity", dispensable: 2000, text: activity },
    Extra { header: "waits for data", dispensable: 2001, text: |m| data_wait(m).map(percent) },
    Extra {
        header: "left out",
        dispensable: 2002,
        text: |m| Some(plain(&left_out(Some(m)))).filter(|it| !it.is_empty()),
    },
];

/// Returns the parameters that get a column, each with its rank for leaving it out: the fewest settings go first. On a
/// narrow screen, parameters that are equal in all trials get no column; their settings are returned separately.
fn parameters<'s>(study: &'s Study, shown: &[&Trial], screen: Screen) -> (Vec<(&'s str, u32)>, Vec<String>) {
    /// Ranks of parameters are below this number, and most ranks of `EXTRAS` are above.
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

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns how busy the multiprocessors of all GPUs were, if the GPUs report it.
fn activity(measurement: &Measurement) -> Option<String> {
    together(&measurement.machine.gpus, Metric::SmActive).map(|share| percent(share.mean))
}

/// The trials that get a mark.
struct Marks {
    /// The number of the winner's last searched trial.
    winner: Option<u32>,
    /// The numbers of trials that tie with the winner.
    tied: Vec<u32>,
    /// The numbers of the trials on the front, if the objective is a front.
    front: Vec<u32>,
}

impl Marks {
    fn of(study: &Study) -> Self {
        let last = |config: &Config| {
            let searched = study.history.of(config).filter(|trial| !trial.purpose.is_repeated());
            searched.last().map(|trial| trial.number)
        };
        if study.objective.is_pareto() {
            let front = study.front();
            let winner = front.iter().find(|member| member.is_recommended).and_then(|member| last(&member.config));
            let front = front.iter().filter_map(|member| last(&member.config)).collect();
            return Self { winner, tied: Vec::new(), front };
        }
        let best = study.best();
        let winner = best.as_ref().and_then(|best| last(&best.winner.config));
        let tied = best.iter().flat_map(|best| &best.ties).filter_map(|tie| last(&tie.config)).collect();
        Self { winner, tied, front: Vec::new() }
    }

    /// Returns the mark of a trial.
    fn mark(&self, study: &Study, trial: &Trial) -> (String, Tone) {
        let number = trial.number;
        let is_baseline = study.baseline.as_ref() == Some(&trial.config);
        let (word, tone) = match &trial.outcome {
            _ if self.winner == Some(number) => ("best", Tone::Good),
            _ if is_baseline && self.tied.contains(&number) => ("baseline, tied", Tone::Note),
            _ if self.tied.contains(&number) => ("tied", Tone::Note),
            _ if self.front.contains(&number) => ("front", Tone::Note),
            Outcome::Measured(_) => match study.judge(trial) {
                Some(Judgement::Infeasible { .. }) => ("not feasible", Tone::Bad),
                _ => ("", Tone::Plain),
            },
            outcome => (outcome.name(), Tone::Bad),
        };
        let word = word.replace('_', " ");
        match (is_baseline, word.as_str()) {
            (true, "") => ("baseline".to_owned(), Tone::Note),
            (true, word) if !word.starts_with("baseline") && tone == Tone::Bad => (format!("baseline, {word}"), tone),
            _ => (word, tone),
        }
    }
}

/// The width of the label in front of a reason.
const LABEL: usize = 15;

/// Lists why trials failed or are infeasible, each reason once: `out of memory #7, #9: CUDA out of memory ...`.
fn reasons(study: &Study, trials: &[&Trial]) -> Vec<String> {
    /// The most reasons in the list; `trials.csv` has the rest.
    const REASONS: usize = 6;
    /// The most trial numbers for each reason.
    const NAMED: usize = 6;
    let mut known: Vec<(&str, String, Vec<u32>)> = Vec::new();
    for trial in trials {
        let (kind, reason) = match (&trial.outcome, study.judge(trial)) {
            (_, Some(Judgement::Infeasible { reason, .. })) => ("not feasible", reason),
            (Outcome::Measured(_) | Outcome::Interrupted, _) => continue,
            (outcome, _) => {
                let whole = shown_outcome(&study.objective, outcome);
                let name = outcome.name().replace('_', " ");
                let reason = whole.strip_prefix(&format!("{name}: ")).map(str::to_owned).unwrap_or(whole);
                (outcome.name(), reason)
            }
        };
        match known.iter_mut().find(|(other, words, _)| *other == kind && *words == reason) {
            Some((.., numbers)) => numbers.push(trial.number),
            None => known.push((kind, reason, vec![trial.number])),
        }
    }
    let more = known.len().saturating_sub(REASONS);
    let mut lines = Vec::new();
    for (kind, reason, numbers) in known.into_iter().take(REASONS) {
        let named: Vec<String> = numbers.iter().take(NAMED).map(|number| format!("#{number}")).collect();
        let others = if numbers.len() > NAMED { format!(" and {} more", numbers.len() - NAMED) } else { String::new() };
        lines.push(format!("{:LABEL$}{}{others}: {}", kind.replace('_', " "), named.join(", "), plain(&reason)));
    }
    if more > 0 {
        lines.push(format!("{:LABEL$}for {more} more reasons see trials.csv", ""));
    }
    lines
}
