//! Plots the result of each probe, and the best value to date.

use super::{Scatter, Studied, figure};
use crate::model::Purpose;
use crate::report::figure::{Axis, Drawing, Figure, Line, Points, Unit};

pub(super) fn build(studied: &Studied<'_>) -> Vec<Figure> {
    let mut scatter = Scatter::default();
    let mut line = Line { label: "best so far".to_owned(), is_steps: true, x: Vec::new(), y: Vec::new() };
    for trial in studied.study.history.trials() {
        let (x, counted) = (f64::from(trial.number), studied.counted(trial));
        scatter.push(studied.mark(trial), trial.number, x, counted);
        let may_win = trial.purpose == Purpose::Baseline || trial.purpose == Purpose::Search;
        let score = studied.study.objective.score_of(&trial.outcome).is_some();
        let Some(counted) = counted.filter(|_| may_win && score) else { continue };
        if line.y.last().is_none_or(|best| studied.is_better(counted.value, *best)) {
            line.x.push(x);
            line.y.push(counted.value);
        }
    }
    if !scatter.has_numbers() {
        return Vec::new();
    }
    let (y, result) = (studied.result_axis(), studied.result());
    let text = match (line.y.first(), line.y.last(), line.x.last()) {
        (Some(first), Some(last), Some(probe)) => format!(
            "The best {result} so far rises from {} to {}, which probe {} reached.{}",
            y.shown(*first),
            y.shown(*last),
            y.unit.shown(*probe),
            scatter.failures()
        )
        .replace("rises", if studied.is_better(1.0, 2.0) { "falls" } else { "rises" }),
        _ => format!("No probe so far may win.{}", scatter.failures()),
    };
    if let (Some(last), Some(end)) = (line.y.last().copied(), studied.study.history.trials().last()) {
        line.x.push(f64::from(end.number));
        line.y.push(last);
    }
    let x = Axis::linear("probe", Unit::Number);
    let line = (!line.x.is_empty()).then_some(line);
    let drawing = Drawing::Points(Points { x, y, series: scatter.done(), line, limits: Vec::new() });
    vec![figure("progress", "progress".to_owned(), format!("best {result} so far"), text, drawing)]
}
