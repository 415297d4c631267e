//! Plots where the time of steps goes, and all parameters at once, with a line for each trial.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Along, Studied, figure, float};
use crate::model::{Measurement, Trial, quantity::show_seconds};
use crate::report::figure::{Axis, Mark, Unit};
use crate::report::row::sorted;

/// The most bars that can be compared side by side: a round number.
const MOST_BARS: usize = 16;
/// The phases of a step in their order (docs/protocol.md); other phases follow by name.
const ORDER: &[&str] = &["data_wait", "host_to_device", "forward", "backward", "communication", "optimizer"];
/// The label of the time of a step that belongs to no phase.
const REST: &str = "everything else";

/// A bar of parts, with the length and the text of each part.
#[derive(Serialize)]
struct Bar {
    trial: u32,
    mark: Mark,
    label: String,
    lengths: Vec<f64>,
    texts: Vec<String>,
}

/// Plots the phases of a step, one bar for each of the best trials and the baseline.
pub(super) fn phases(studied: &Studied<'_>) -> Vec<Value> {
    let study = studied.study;
    let has_phases = |trial: &&Trial| {
        let measurement = trial.outcome.measurement();
        measurement.is_some_and(|m| !m.phase_seconds.is_empty() && step_seconds(m).is_some())
    };
    let all: Vec<&Trial> = sorted(study).into_iter().filter(has_phases).collect();
    let mut shown: Vec<&Trial> = all.iter().copied().take(MOST_BARS).collect();
    let baseline = all.iter().find(|trial| study.baseline.as_ref() == Some(&trial.config));
    if let Some(baseline) = baseline.filter(|baseline| !shown.iter().any(|trial| trial.number == baseline.number)) {
        shown.truncate(MOST_BARS - 1);
        shown.push(baseline);
    }
    let mut parts: Vec<String> = Vec::new();
    for name in shown.iter().filter_map(|trial| trial.outcome.measurement()).flat_map(|m| m.phase_seconds.keys()) {
        if !parts.contains(name) {
            parts.push(name.clone());
        }
    }
    if shown.is_empty() || parts.is_empty() {
        return Vec::new();
    }
    parts.sort_by_key(|name| (ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()), name.clone()));
    let bars: Vec<Bar> = shown.iter().filter_map(|trial| bar(studied, trial, &parts)).collect();
    parts.push(REST.to_owned());
    let named = bars.iter().find(|bar| bar.mark == Mark::Best).or(bars.first());
    let text = named.map_or_else(String::new, |bar| {
        let told = parts.iter().zip(&bar.texts).zip(&bar.lengths).filter(|(_, length)| **length > 0.0);
        let told: Vec<String> = told.map(|((part, text), _)| format!("{} {text}", part.replace('_', " "))).collect();
        format!("A step of {}: {}.", bar.label, told.join(", "))
    });
    let left = all.len() - bars.len();
    let rest = if left > 0 { format!(" The other {left} measured trials are in the table.") } else { String::new() };
    let x = Axis::linear("share of a step", Unit::Share);
    let drawing = json!({ "drawing": "bars", "x": x, "parts": parts, "bars": bars });
    vec![figure("phases", "phases", "where a step's time went", &(text + &rest), drawing)]
}

/// Returns the time of a step, at least the sum of its phases; only the sum if the time of a step is not known.
fn step_seconds(measurement: &Measurement) -> Option<f64> {
    let phases: f64 = measurement.phase_seconds.values().sum();
    measurement.timing.step_seconds.map(|seconds| seconds.max(phases)).or(Some(phases)).filter(|seconds| *seconds > 0.0)
}

fn bar(studied: &Studied<'_>, trial: &Trial, parts: &[String]) -> Option<Bar> {
    let measurement = trial.outcome.measurement()?;
    let whole = step_seconds(measurement)?;
    let mut seconds: Vec<f64> =
        parts.iter().map(|part| measurement.phase_seconds.get(part).copied().unwrap_or(0.0).max(0.0)).collect();
    seconds.push((whole - seconds.iter().sum::<f64>()).max(0.0));
    let mark = studied.mark(trial);
    let is_named = matches!(mark, Mark::Best | Mark::Baseline | Mark::Tied);
    let word = if is_named { mark.row().map_or("", |row| row.label) } else { "" };
    let settings = studied.study.settings(&trial.config).line();
    Some(Bar {
        trial: trial.number,
        mark,
        label: format!("#{} {word} {settings}", trial.number).replace("  ", " "),
        lengths: seconds.iter().map(|part| part / whole).collect(),
        texts: seconds.iter().map(|part| format!("{} ({:.0} %)", show_seconds(*part), part / whole * 100.0)).collect(),
    })
}

/// The most lines that can still be distinguished: a round number.
const MOST_LINES: usize = 400;

/// Plots each trial as a line over one axis for each parameter and the result.
pub(super) fn parallel(studied: &Studied<'_>) -> Vec<Value> {
    let study = studied.study;
    let is_searched = |at: &usize| study.space.parameters()[*at].len() > 1;
    let along: Vec<Along<'_>> =
        (0..study.space.parameters().len()).filter(is_searched).map(|at| Along::of(study, at)).collect();
    let trials: Vec<&Trial> = study.history.searched().collect();
    let mut scored: Vec<_> = trials.iter().filter_map(|trial| Some((studied.counted(trial)?.value, *trial))).collect();
    if along.len() < 2 || scored.is_empty() {
        return Vec::new();
    }
    // The worst trial comes first, so that the best is drawn on top.
    scored.sort_by(|a, b| study.objective.score(a.0).total_cmp(&study.objective.score(b.0)));
    let last = float(scored.len().saturating_sub(1).max(1));
    // The rank is 0 for the worst and 1 for the best.
    let strand = |trial: &Trial, rank: Option<f64>, value: Option<f64>| {
        let values: Vec<_> = along.iter().map(|along| along.place(&trial.config)).chain([value]).collect();
        json!({ "trial": trial.number, "mark": studied.mark(trial), "rank": rank, "values": values })
    };
    let failed = trials.iter().filter(|trial| studied.counted(trial).is_none());
    let mut lines: Vec<Value> = failed.map(|trial| strand(trial, None, None)).collect();
    let ranked = scored.iter().enumerate();
    lines.extend(ranked.map(|(at, (value, trial))| strand(trial, Some(float(at) / last), Some(*value))));
    let all = lines.len();
    let mut text = format!("{all} trials over {} parameters.", along.len());
    if all > MOST_LINES {
        lines = thinned(lines);
        let (shown, axes) = (lines.len(), along.len());
        text = format!("{shown} of {all} trials over {axes} parameters: the best, and an even selection of the rest.");
    }
    if let Some(best) = &studied.best {
        text += &format!(" The best has {}.", study.settings(&best.winner.config).line());
    }
    let axes: Vec<Axis> = along.into_iter().map(|along| along.axis).chain([studied.result_axis()]).collect();
    let drawing = json!({ "drawing": "parallel", "axes": axes, "lines": lines });
    vec![figure("parallel", "parallel", "all parameters at once", &text, drawing)]
}

/// Keeps the best lines for half of the limit, and an even selection of the rest for the other half.
fn thinned(mut lines: Vec<Value>) -> Vec<Value> {
    let best = lines.split_off(lines.len() - MOST_LINES / 2);
    let step = lines.len().div_ceil(MOST_LINES / 2).max(1);
    lines.into_iter().step_by(step).chain(best).collect()
}
