//! Plots the first two metrics of a front against each other.

use super::{Scatter, Studied, figure, metric_unit};
use crate::model::{Direction, Goal};
use crate::report::figure::{Axis, Drawing, Figure, Line, Points};

pub(super) fn build(studied: &Studied<'_>) -> Vec<Figure> {
    let study = studied.study;
    let [first, second, ..] = study.objective.goals() else { return Vec::new() };
    let number = |goal: &Goal, trial: &crate::model::Trial| {
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
    let mut text = format!("{} of {} measured trials are on the front.", front.len(), study.history.trials().len());
    if !study.objective.is_pareto() {
        text = format!("{} and {} of each trial.", first.metric, second.metric);
    }
    if let ([(low, of_low), .., (high, of_high)], true) = (ends.as_slice(), study.objective.is_pareto()) {
        let end = |a: f64, b: f64| format!("{} {} at {} {}", first.metric, y.shown(b), second.metric, x.shown(a));
        text += &format!(" It goes from {} to {}.", end(*low, *of_low), end(*high, *of_high));
    }
    let line = (ends.len() > 1).then(|| Line {
        label: "front".to_owned(),
        is_steps: false,
        x: ends.iter().map(|(x, _)| *x).collect(),
        y: ends.iter().map(|(_, y)| *y).collect(),
    });
    let title = format!("{} against {}", first.metric, second.metric);
    let drawing = Drawing::Points(Points { x, y, series: scatter.done(), line, limits: Vec::new() });
    vec![figure("front", "front".to_owned(), title, text, drawing)]
}
