//! Plots trials as points: the result of each probe, the result against each parameter, two metrics of a front, and peak memory.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Along, Scatter, Studied, figure, float, metric_unit};
use crate::model::{Config, Direction, Estimate, Goal, MemoryRole, Purpose, Role, Trial, quantity::show_bytes};
use crate::report::figure::{Axis, Mark, Scale, Unit, id_of};

/// Plots the result of each probe, and the best value to date.
pub(super) fn progress(studied: &Studied<'_>) -> Vec<Value> {
    let mut scatter = Scatter::default();
    let mut best: Vec<(f64, f64)> = Vec::new();
    for trial in studied.study.history.trials() {
        let (x, counted) = (f64::from(trial.number), studied.counted(trial));
        scatter.push(studied.mark(trial), trial.number, x, counted);
        let may_win = trial.purpose == Purpose::Baseline || trial.purpose == Purpose::Search;
        let score = studied.study.objective.score_of(&trial.outcome).is_some();
        let Some(counted) = counted.filter(|_| may_win && score) else { continue };
        if best.last().is_none_or(|(_, best)| studied.is_better(counted.value, *best)) {
            best.push((x, counted.value));
        }
    }
    if !scatter.has_numbers() {
        return Vec::new();
    }
    let (y, result) = (studied.result_axis(), studied.study.objective.metric());
    let text = match (best.first(), best.last()) {
        (Some((_, first)), Some((probe, last))) => format!(
            "The best {result} so far {} from {} to {}, which probe {} reached.{}",
            if studied.is_better(1.0, 2.0) { "falls" } else { "rises" },
            y.shown(*first),
            y.shown(*last),
            y.unit.shown(*probe),
            scatter.failures()
        ),
        _ => format!("No probe so far may win.{}", scatter.failures()),
    };
    if let (Some((_, last)), Some(end)) = (best.last().copied(), studied.study.history.trials().last()) {
        best.push((f64::from(end.number), last));
    }
    let x = Axis::linear("probe", Unit::Number);
    let drawing = drawing(&x, &y, &scatter, line("best so far", true, &best), &[]);
    vec![figure("progress", "progress", &format!("best {result} so far"), &text, drawing)]
}

pub(super) fn against(studied: &Studied<'_>) -> Vec<Value> {
    let is_searched = |at: &usize| studied.study.space.parameters()[*at].len() > 1;
    (0..studied.study.space.parameters().len()).filter(is_searched).filter_map(|at| one(studied, at)).collect()
}

/// Makes the figure of one parameter; `None` if nothing was measured.
fn one(studied: &Studied<'_>, at: usize) -> Option<Value> {
    let along = Along::of(studied.study, at);
    let mut scatter = Scatter::default();
    let mut best: Vec<(f64, f64)> = Vec::new();
    let mut absent = 0;
    for trial in studied.study.history.trials() {
        let Some(place) = along.place(&trial.config) else {
            absent += 1;
            continue;
        };
        let counted = studied.counted(trial);
        scatter.push(studied.mark(trial), trial.number, place, counted);
        let may_win = !trial.purpose.is_repeated() && studied.study.objective.score_of(&trial.outcome).is_some();
        let Some(counted) = counted.filter(|_| may_win) else { continue };
        match best.iter_mut().find(|(x, _)| *x == place) {
            Some((_, y)) if studied.is_better(counted.value, *y) => *y = counted.value,
            Some(_) => {}
            None => best.push((place, counted.value)),
        }
    }
    if !scatter.has_numbers() {
        return None;
    }
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (name, result) = (along.axis.label.clone(), studied.study.objective.metric());
    let y = studied.result_axis();
    let shown = |&(x, value): &(f64, f64)| format!("{} at {}", y.shown(value), along.axis.shown(x));
    let mut each: Vec<String> = best.iter().map(shown).collect();
    const TOLD: usize = 12;
    if each.len() > TOLD {
        each.truncate(TOLD);
        each.push("and so on".to_owned());
    }
    let mut text = format!("The best {result} at each {name}: {}.{}", each.join(", "), scatter.failures());
    match absent {
        0 => {}
        1 => text += &format!(" 1 trial does not use {name}."),
        _ => text += &format!(" {absent} trials do not use {name}."),
    }
    // Categories have no order, so a line between them has no meaning.
    let has_order = along.axis.scale != Scale::Categories;
    let line = has_order.then(|| line("best at each setting", false, &best)).flatten();
    let (id, title) = (format!("against-{}-{}", at + 1, id_of(&name)), format!("{result} against {name}"));
    Some(figure("against", &id, &title, &text, drawing(&along.axis, &y, &scatter, line, &[])))
}

/// Returns the line through the points, if there are several. If `is_steps`, it is level until the next point.
fn line(label: &str, is_steps: bool, points: &[(f64, f64)]) -> Option<Value> {
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    (points.len() > 1).then(|| json!({ "label": label, "is_steps": is_steps, "x": x, "y": y }))
}

/// Draws points with a line, and horizontal lines at the limits, such as the memory capacity.
fn drawing(x: &Axis, y: &Axis, points: &Scatter, line: Option<Value>, limits: &[Value]) -> Value {
    json!({ "drawing": "points", "x": x, "y": y, "series": points.series(), "line": line, "limits": limits })
}

/// Plots the first two metrics of a front against each other.
pub(super) fn plane(studied: &Studied<'_>) -> Vec<Value> {
    let study = studied.study;
    let [first, second, ..] = study.objective.goals() else { return Vec::new() };
    let number = |goal: &Goal, trial: &Trial| {
        let estimate = study.objective.estimate_of(&goal.metric, trial.outcome.measurement()?)?;
        estimate.value.is_finite().then_some(estimate)
    };
    let mut scatter = Scatter::default();
    for trial in study.history.trials() {
        let Some((x, y)) = number(second, trial).zip(number(first, trial)) else { continue };
        scatter.push(studied.mark(trial), trial.number, x.value, Some(y));
    }
    if !scatter.has_numbers() {
        return Vec::new();
    }
    let front = if study.objective.is_pareto() { study.front() } else { Vec::new() };
    let mut ends: Vec<(f64, f64)> =
        front.iter().filter_map(|member| Some((member.numbers.get(1)?.value, member.numbers.first()?.value))).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let axis = |goal: &Goal| {
        let better = if goal.direction == Direction::Maximize { "more" } else { "less" };
        Axis::linear(format!("{} ({better} is better)", goal.metric), metric_unit(&goal.metric))
    };
    let (x, y) = (axis(second), axis(first));
    // Several trials can measure the same config.
    let measured = study.history.trials().iter().filter(|trial| trial.outcome.measurement().is_some());
    let configs: HashSet<&Config> = measured.map(|trial| &trial.config).collect();
    let mut text = format!("{} of {} measured configs are on the front.", front.len(), configs.len());
    if !study.objective.is_pareto() {
        text = format!("{} and {} of each trial.", first.metric, second.metric);
    }
    if let ([(low, of_low), .., (high, of_high)], true) = (ends.as_slice(), study.objective.is_pareto()) {
        let end = |a: f64, b: f64| format!("{} {} at {} {}", first.metric, y.shown(b), second.metric, x.shown(a));
        text += &format!(" It goes from {} to {}.", end(*low, *of_low), end(*high, *of_high));
    }
    let title = format!("{} against {}", first.metric, second.metric);
    vec![figure("front", "front", &title, &text, drawing(&x, &y, &scatter, line("front", false, &ends), &[]))]
}

/// Plots peak device memory against the parameters that it grows with, and the memory capacity.
pub(super) fn memory(studied: &Studied<'_>) -> Vec<Value> {
    let study = studied.study;
    let parameters = study.space.parameters();
    let of_role = parameters.iter().position(|parameter| parameter.role() == Some(Role::Batch));
    let grows = || parameters.iter().position(|parameter| parameter.memory_role() == MemoryRole::Grows);
    let Some(at) = of_role.or_else(grows) else { return Vec::new() };
    let along = Along::of(study, at);
    let mut scatter = Scatter::default();
    let (mut capacity, mut most) = (None, 0);
    for trial in study.history.trials() {
        let Some(place) = along.place(&trial.config) else { continue };
        let mark = studied.mark(trial);
        let measurement = trial.outcome.measurement();
        let peak = measurement.and_then(|measurement| measurement.memory.peak_bytes);
        capacity = measurement.and_then(|measurement| measurement.memory.capacity_bytes).max(capacity);
        most = most.max(peak.unwrap_or(0));
        match peak {
            Some(peak) => scatter.push(mark, trial.number, place, Some(Estimate::point(bytes(peak)))),
            None if mark == Mark::OutOfMemory => scatter.push(mark, trial.number, place, None),
            None => {}
        }
    }
    if !scatter.has_numbers() {
        return Vec::new();
    }
    let mut limits = Vec::new();
    let mut text = format!("The largest peak is {}", show_bytes(most));
    // A limit further above the largest point than this factor would press all points to the bottom, and is left out.
    const FAR: u64 = 4;
    if let Some(capacity) = capacity {
        let free = study.objective.headroom().of(capacity);
        text += &format!(" of {} in total; {} must stay free.", show_bytes(capacity), show_bytes(free));
        if capacity / FAR <= most {
            let limit =
                |label: &str, at: u64| json!({ "label": format!("{label}, {}", show_bytes(at)), "at": bytes(at) });
            limits.push(limit("all memory", capacity));
            limits.extend((free > 0).then(|| limit("limit", capacity.saturating_sub(free))));
        }
    } else {
        text += "; how much there is was not told.";
    }
    text += &scatter.failures().replace("failed", "ran out of memory");
    let title = format!("memory against {}", along.axis.label);
    let y = Axis::linear("peak memory", Unit::Bytes);
    vec![figure("memory", "memory", &title, &text, drawing(&along.axis, &y, &scatter, None, &limits))]
}

fn bytes(size: u64) -> f64 {
    usize::try_from(size).map_or(f64::INFINITY, float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Failure, Measurement, MemoryUse, Objective, Outcome, Parameter, Space};
    use crate::search::Study;

    #[test]
    fn a_front_is_a_share_of_the_measured_configs() {
        let space = Space::new([Parameter::values("x", [1, 2, 3])]).unwrap();
        let measured = |speed: f64, peak_bytes: u64| {
            Outcome::Measured(Measurement {
                throughput: Some(Estimate::interval(speed, 0.99 * speed, 1.01 * speed)),
                memory: MemoryUse { peak_bytes: Some(peak_bytes), ..Default::default() },
                ..Measurement::default()
            })
        };
        let trials = [
            (Purpose::Search, 0, measured(100.0, 1 << 20)),
            (Purpose::Search, 1, measured(200.0, 1 << 30)),
            (Purpose::Search, 2, Outcome::Crashed(Failure::new("exit code 1"))),
            (Purpose::Round, 1, measured(200.0, 1 << 30)),
        ];
        let trials = (1..).zip(trials).map(|(number, (purpose, index, outcome))| {
            Trial::new(number, purpose, space.config(index).unwrap(), outcome)
        });
        let trials: Vec<Trial> = trials.collect();
        let goals = ["throughput", "peak_memory"].into_iter().filter_map(Goal::known);
        let study = Study { objective: Objective::pareto(goals).unwrap(), ..Study::new(space, trials) };
        let figures = plane(&Studied::of(&study));
        let text = figures.first().and_then(|figure| figure["text"].as_str()).unwrap_or_default();
        assert!(text.contains(" of 2 measured configs are on the front."), "{text}");
    }
}
