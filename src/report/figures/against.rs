//! Plots the result against each parameter.

use super::{Along, Scatter, Studied, figure};
use crate::report::figure::{Drawing, Figure, Line, Points, Scale, id_of};

pub(super) fn build(studied: &Studied<'_>) -> Vec<Figure> {
    let is_searched = |at: &usize| studied.study.space.parameters()[*at].len() > 1;
    (0..studied.study.space.parameters().len()).filter(is_searched).filter_map(|at| one(studied, at)).collect()
}

/// Makes the figure of one parameter; `None` if nothing was measured.
fn one(studied: &Studied<'_>, at: usize) -> Option<Figure> {
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
    let (name, result, y) = (along.axis.label.clone(), studied.result(), studied.result_axis());
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
    let (x, limits, series) = (along.axis, Vec::new(), scatter.done());
    // Between category names a line would have no meaning.
    let line = (x.scale != Scale::Categories && best.len() > 1).then(|| Line {
        label: "best at each setting".to_owned(),
        is_steps: false,
        x: best.iter().map(|(x, _)| *x).collect(),
        y: best.iter().map(|(_, y)| *y).collect(),
    });
    let drawing = Drawing::Points(Points { x, y, series, line, limits });
    let title = format!("{result} against {name}");
    Some(figure("against", format!("against-{}-{}", at + 1, id_of(&name)), title, text, drawing))
}
