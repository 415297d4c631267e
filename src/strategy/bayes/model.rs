//! From the history to the proposal that the process makes of it.

use super::Known;
use super::acquisition::{Choice, Judge};
use super::candidates::Chunk;
use super::earlier::Lesson;
use super::feasibility::Feasibility;
use super::kernel::Shape;
use super::mean::{History, Mean};
use super::physics::Physics;
use super::points::{Axis, Points, axes};
use super::process::{Data, Process};
use super::scale::Scale;
use crate::objective::Direction;
use crate::space::Config;
use crate::strategy::{Proposal, View};
use crate::trial::Trial;

/// Trials that the kernel is fitted to, and that the process knows: the work grows with the cube of their number.
const MOST_FITTED: usize = 64;
const MOST_KNOWN: usize = 300;

/// What is fitted to the history.
struct Model<'l> {
    axes: Vec<Axis>,
    scale: Scale,
    shape: Shape,
    mean: Mean<'l>,
}

impl<'l> Model<'l> {
    fn of(view: &View<'_>, known: &Known<'_>, physics: Option<Physics>, lessons: &'l [Lesson]) -> Self {
        /// The deviation of throughputs, as logarithms, among the configs of a space.
        const EXPECTED: f64 = 0.4;
        /// With fewer scores their deviation tells nothing.
        const FEW: usize = 3;
        let axes = axes(view.space);
        let scores: Vec<f64> = known.scored.iter().map(|(_, score)| *score).collect();
        let earlier = lessons.first().filter(|_| scores.len() < FEW).map(Lesson::spread);
        let expected = physics.is_some().then_some(EXPECTED).or(earlier);
        let scale = Scale::of(view.objective, &scores, expected);
        let kept = representatives(&known.scored, MOST_FITTED);
        let history = History {
            space: view.space,
            axes: &axes,
            data: data(view, &axes, &scale, &kept),
            configs: kept.iter().map(|(trial, _)| &trial.config).collect(),
            deviation: scale.deviation(),
            is_of_ratios: scale.is_of_ratios(),
            trials: known.trials.len() + view.pending.len(),
        };
        let (mean, fitted) = Mean::most_likely(&history, physics, lessons);
        Self { axes, scale, shape: fitted.shape, mean }
    }

    /// The value that the mean expects, up to a constant.
    fn offset(&self, view: &View<'_>, config: &Config) -> f64 {
        self.mean.value(view.space, config, self.scale.deviation(), self.scale.is_of_ratios())
    }
}

/// The candidate that is worth most by the model of the history; `None` where there is no model or no open candidate, or
/// where the history is too short for a model that learns from no earlier study.
pub(super) fn propose(
    view: &View<'_>,
    known: &Known<'_>,
    candidates: &[Chunk],
    physics: Option<Physics>,
    lessons: &[Lesson],
    is_short: bool,
) -> Option<Proposal> {
    let model = Model::of(view, known, physics, lessons);
    if is_short && !model.mean.is_earlier() {
        return None;
    }
    let (axes, scale, shape) = (&model.axes, &model.scale, &model.shape);
    let offset = |config: &Config| model.offset(view, config);
    let kept = representatives(&known.scored, MOST_KNOWN);
    let mut data = data(view, axes, scale, &kept);
    for (value, (trial, _)) in data.values.iter_mut().zip(&kept) {
        *value -= offset(&trial.config);
    }
    if !view.pending.is_empty() {
        // What is being probed counts as known, with the value that is expected of it.
        let pending = Points::of(view.space, axes, view.pending);
        let process = Process::new(&data, axes, shape)?;
        let factors = process.factors(&pending);
        let expected: Vec<f64> =
            (0..pending.len()).map(|at| process.belief(&factors, pending.point(at)).mean).collect();
        let configs = kept.iter().map(|(trial, _)| &trial.config).chain(view.pending);
        data.points = Points::of(view.space, axes, configs);
        data.noise.resize(data.noise.len() + expected.len(), 0.0);
        data.values.extend(expected);
    }
    let process = Process::new(&data, axes, shape)?;
    let feasibility = feasibility(view, known, axes);
    let chances = feasibility.as_ref().and_then(|model| Some((model, model.process(axes)?)));
    let (best, top) = view.best().or_else(|| known.scored.first().copied())?;
    let judge = Judge {
        process: &process,
        feasibility: chances.as_ref().map(|(model, process)| (*model, process)),
        best: scale.value(top),
        offset: &offset,
    };
    let choice = judge.choose(candidates, |config| view.is_open(config))?;
    Some(explained(view, scale, (&best.config, top), choice))
}

fn data(view: &View<'_>, axes: &[Axis], scale: &Scale, scored: &[&(&Trial, f64)]) -> Data {
    let variance = |(trial, score): &(&Trial, f64)| {
        let estimate = trial.outcome.partial_measurement().and_then(|m| view.objective.estimate(m));
        let half = estimate.and_then(|estimate| estimate.relative_half_width());
        half.map_or(0.0, |half| scale.variance(*score, half))
    };
    Data {
        points: Points::of(view.space, axes, scored.iter().map(|(trial, _)| &trial.config)),
        values: scored.iter().map(|(_, score)| scale.value(*score)).collect(),
        noise: scored.iter().map(|entry| variance(entry)).collect(),
    }
}

fn feasibility(view: &View<'_>, known: &Known<'_>, axes: &[Axis]) -> Option<Feasibility> {
    let kept = &known.trials[known.trials.len().saturating_sub(MOST_KNOWN)..];
    let ran: Vec<bool> = kept.iter().map(|trial| view.objective.partial_score_of(&trial.outcome).is_some()).collect();
    let points = Points::of(view.space, axes, kept.iter().map(|trial| &trial.config));
    Feasibility::of(points, &ran, axes.len())
}

/// Trials of which the best half and an even share of the rest stand for all, oldest first.
fn representatives<'k, 'v>(scored: &'k [(&'v Trial, f64)], most: usize) -> Vec<&'k (&'v Trial, f64)> {
    if scored.len() <= most {
        return scored.iter().collect();
    }
    let mut order: Vec<usize> = (0..scored.len()).collect();
    order.sort_by(|&a, &b| scored[b].1.total_cmp(&scored[a].1).then(a.cmp(&b)));
    let (best, rest) = order.split_at(most / 2);
    let wanted = most - best.len();
    let spread = (0..wanted).map(|at| rest[at * rest.len() / wanted]);
    let mut kept: Vec<usize> = best.iter().copied().chain(spread).collect();
    kept.sort_unstable();
    kept.into_iter().map(|at| &scored[at]).collect()
}

/// The choice with what is expected of it, in a phrase.
fn explained(view: &View<'_>, scale: &Scale, (best, top): (&Config, f64), choice: Choice) -> Proposal {
    let expected = scale.gain(top, choice.belief.mean - scale.value(top));
    let chance =
        if choice.chance < 0.995 { format!(", {:.0} % likely to run", choice.chance * 100.0) } else { String::new() };
    let (percent, word) = ((expected.abs() * 100.0).min(999.0), if expected < 0.0 { "worse" } else { "better" });
    let changes = changes(view, best, &choice.config);
    let reason = match view.objective.direction() {
        Direction::Maximize => format!("tries {changes}: predicted {:+.0} %{chance}", percent.copysign(expected)),
        Direction::Minimize => format!("tries {changes}: predicted {percent:.0} % {word}{chance}"),
    };
    Proposal { reason: Some(reason), gain: Some(scale.gain(top, choice.improvement)), config: choice.config }
}

/// What a config has that the best one has not.
fn changes(view: &View<'_>, best: &Config, config: &Config) -> String {
    const MOST: usize = 4;
    let (settings, old) = (view.space.settings(config), view.space.settings(best));
    let is_changed = |name: &str| view.space.parameter_index(name).is_some() && settings.get(name) != old.get(name);
    let mut changed: Vec<String> =
        settings.iter().filter(|(name, _)| is_changed(name)).map(|(name, value)| format!("{name}={value}")).collect();
    if changed.len() > MOST {
        let rest = changed.len() - MOST;
        changed.truncate(MOST);
        changed.push(format!("and {rest} more"));
    }
    changed.join(" ")
}
