//! From the history to the proposal that the process makes of it.

use super::Known;
use super::acquisition::{Choice, Judge};
use super::candidates::Chunk;
use super::feasibility::Feasibility;
use super::fit;
use super::kernel::Shape;
use super::memory::MemoryNeed;
use super::physics::{self, Numbers, Physics};
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
struct Model {
    axes: Vec<Axis>,
    scale: Scale,
    shape: Shape,
    /// The physics with its numbers, where it explains the history.
    physics: Option<(Physics, Numbers)>,
}

impl Model {
    fn of(view: &View<'_>, known: &Known<'_>, physics: Option<Physics>) -> Self {
        /// The deviation of throughputs, as logarithms, among the configs of a space.
        const EXPECTED: f64 = 0.4;
        let axes = axes(view.space);
        let scores: Vec<f64> = known.scored.iter().map(|(_, score)| *score).collect();
        let scale = Scale::of(view.objective, &scores, physics.is_some().then_some(EXPECTED));
        let kept = representatives(&known.scored, MOST_FITTED);
        let mut data = data(view, &axes, &scale, &kept);
        let plain = fit::fit(&data, &axes, false);
        let Some(physics) = physics else { return Self { axes, scale, shape: plain.shape, physics: None } };
        let whole: Vec<f64> = kept.iter().map(|(_, score)| scale.whole_value(*score)).collect();
        let against = if whole == data.values {
            plain.cost
        } else {
            data.values.clone_from(&whole);
            fit::fit(&data, &axes, false).cost
        };
        let known = physics::Known {
            space: view.space,
            configs: kept.iter().map(|(trial, _)| &trial.config).collect(),
            values: &whole,
            deviation: scale.deviation(),
            waits: kept.iter().map(|(trial, _)| physics.wait_of(view.space, trial)).collect(),
        };
        let (numbers, prior) = physics.fit(&known);
        data.values = physics.rest(&known, &numbers);
        let around = fit::fit(&data, &axes, true);
        if around.cost + prior > against + DOUBT {
            return Self { axes, scale, shape: plain.shape, physics: None };
        }
        Self { axes, scale, shape: around.shape, physics: Some((physics, numbers)) }
    }

    /// What the process is to know of a score: its value, or what the physics leaves of it.
    fn left(&self, view: &View<'_>, config: &Config, score: f64) -> f64 {
        match &self.physics {
            Some((physics, numbers)) => {
                let mean = physics.mean(view.space, config, numbers) / self.scale.deviation();
                physics::drawn(self.scale.whole_value(score) - mean)
            }
            None => self.scale.value(score),
        }
    }

    /// By how much the physics may expect other values, in units of the scale, and how likely each is.
    fn others(&self, view: &View<'_>, config: &Config, into: &mut Vec<(f64, f64)>) {
        if let Some((physics, numbers)) = &self.physics {
            physics.other_means(view.space, config, numbers, into);
            into.iter_mut().for_each(|(shift, _)| *shift /= self.scale.deviation());
        }
    }

    /// The value that the physics expects, with its variance; without it zero.
    fn offset(&self, view: &View<'_>, config: &Config) -> (f64, f64) {
        let Some((physics, numbers)) = &self.physics else { return (0.0, 0.0) };
        let (mean, variance) = physics.uncertain_mean(view.space, config, numbers);
        let unit = self.scale.deviation();
        (mean / unit, variance / (unit * unit))
    }
}

/// By how much the history may speak against the physics, as a logarithm of a ratio of likelihoods, before the process goes
/// without it.
const DOUBT: f64 = 2.0;

/// The candidate that is worth most by the model of the history; `None` where there is no model or no open candidate.
pub(super) fn propose(
    view: &View<'_>,
    known: &Known<'_>,
    candidates: &[Chunk],
    physics: Option<Physics>,
    memory: Option<&MemoryNeed>,
) -> Option<Proposal> {
    let model = Model::of(view, known, physics);
    let (axes, scale, shape) = (&model.axes, &model.scale, &model.shape);
    let kept = representatives(&known.scored, MOST_KNOWN);
    let mut data = data(view, axes, scale, &kept);
    for (value, (trial, score)) in data.values.iter_mut().zip(&kept) {
        *value = model.left(view, &trial.config, *score);
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
    let feasibility = feasibility(view, known, axes, memory);
    let chances = feasibility.as_ref().and_then(|model| Some((model, model.process(axes)?)));
    let (best, top) = view.best().or_else(|| known.scored.first().copied())?;
    let judge = Judge {
        process: &process,
        feasibility: chances.as_ref().map(|(model, process)| (*model, process)),
        best: scale.value(top),
        offset: &|config| model.offset(view, config),
        fits: &|config| memory.map_or(1.0, |memory| memory.chance(view.space, config)),
        is_unsure: model.physics.is_some(),
        others: &|config, into| model.others(view, config, into),
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

/// What tells which configs run, but for the failures that a lack of memory explains.
fn feasibility(view: &View<'_>, known: &Known<'_>, axes: &[Axis], memory: Option<&MemoryNeed>) -> Option<Feasibility> {
    let is_explained = |trial: &Trial| memory.is_some_and(|memory| memory.explains(view.space, view.objective, trial));
    let kept: Vec<&Trial> = known.trials.iter().copied().filter(|trial| !is_explained(trial)).collect();
    let kept = &kept[kept.len().saturating_sub(MOST_KNOWN)..];
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
    let verb = if choice.fits < choice.chance / choice.fits { "fit" } else { "run" };
    let chance = match choice.chance {
        chance if chance < 0.995 => format!(", {:.0} % likely to {verb}", chance * 100.0),
        _ => String::new(),
    };
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
