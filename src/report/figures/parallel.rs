//! Plots all parameters at once, with a line for each trial.

use super::{Along, Studied, figure, float};
use crate::model::Trial;
use crate::report::figure::{Drawing, Figure, Parallel, Strand};

/// The most lines that can still be distinguished: a round number.
const MOST: usize = 400;

pub(super) fn build(studied: &Studied<'_>) -> Vec<Figure> {
    let study = studied.study;
    let is_searched = |at: &usize| study.space.parameters()[*at].len() > 1;
    let along: Vec<Along<'_>> =
        (0..study.space.parameters().len()).filter(is_searched).map(|at| Along::of(study, at)).collect();
    let trials: Vec<&Trial> = study.history.searched().collect();
    let mut scored: Vec<(f64, &Trial)> =
        trials.iter().filter_map(|trial| Some((studied.counted(trial)?.value, *trial))).collect();
    if along.len() < 2 || scored.is_empty() {
        return Vec::new();
    }
    // The worst trial comes first, so that the best is drawn on top.
    scored.sort_by(|a, b| study.objective.score(a.0).total_cmp(&study.objective.score(b.0)));
    let last = float(scored.len().saturating_sub(1).max(1));
    let strand = |trial: &Trial, rank: Option<f64>, value: Option<f64>| Strand {
        trial: trial.number,
        mark: studied.mark(trial),
        rank,
        values: along.iter().map(|along| along.place(&trial.config)).chain([value]).collect(),
    };
    let failed = trials.iter().filter(|trial| studied.counted(trial).is_none());
    let mut lines: Vec<Strand> = failed.map(|trial| strand(trial, None, None)).collect();
    lines.extend(
        scored.iter().enumerate().map(|(at, (value, trial))| strand(trial, Some(float(at) / last), Some(*value))),
    );
    let all = lines.len();
    let mut text = format!("{all} trials over {} parameters.", along.len());
    if all > MOST {
        lines = thinned(lines);
        text = format!(
            "{} of {all} trials over {} parameters: the best, and an even selection of the rest.",
            lines.len(),
            along.len()
        );
    }
    if let Some(best) = &studied.best {
        text += &format!(" The best has {}.", study.settings(&best.winner.config).line());
    }
    let axes = along.into_iter().map(|along| along.axis).chain([studied.result_axis()]).collect();
    let title = "all parameters at once".to_owned();
    vec![figure("parallel", "parallel".to_owned(), title, text, Drawing::Parallel(Parallel { axes, lines }))]
}

/// Keeps the best lines for half of the limit, and an even selection of the rest for the other half.
fn thinned(mut lines: Vec<Strand>) -> Vec<Strand> {
    let best = lines.split_off(lines.len() - MOST / 2);
    let step = lines.len().div_ceil(MOST / 2).max(1);
    lines.into_iter().step_by(step).chain(best).collect()
}
