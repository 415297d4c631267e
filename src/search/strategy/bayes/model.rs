//! Fits a model to the history and makes the proposal of the process.

use std::sync::Arc;

use super::Known;
use super::acquisition::{Choice, Judge};
use super::candidates::Chunk;
use super::fit;
use super::kernel::Shape;
use super::mean::{Lesson, Mean};
use super::memory_model::MemoryNeed;
use super::physics::Physics;
use super::plateau;
use super::points::{Axis, Points, axes};
use super::process::{Data, Feasibility, History, Process};
use super::scale::{EXPECTED, EXPECTED_ANYWHERE, Scale};
use crate::model::{Config, Direction, Trial};
use crate::search::strategy::{Proposal, SoFar, View, earlier::spread};

/// The most trials that the kernel is fitted to: the work grows with the cube of their number.
const MOST_FITTED: usize = 64;

/// Round numbers that bound the time of a proposal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The most trials that the process uses: the work grows with the cube of their number.
    known: usize,
    /// The most candidates whose deviation is computed exactly, which costs far more than a bound.
    refined: usize,
}

impl Limits {
    pub(super) const USUAL: Self = Self { known: 300, refined: 1000 };
    /// The limits if probes end faster than proposals can be made with the usual limits.
    pub(super) const HURRIED: Self = Self { known: 96, refined: 200 };
}

#[derive(Debug)]
pub(super) struct Model {
    axes: Vec<Axis>,
    scale: Scale,
    shape: Shape,
    mean: Mean,
}

impl Model {
    pub(super) fn of(
        view: &View<'_>,
        known: &Known<'_>,
        physics: Option<&Physics>,
        lessons: &[Arc<Lesson>],
        is_its_turn: bool,
    ) -> Self {
        /// With fewer scores than these, the prediction of an earlier study counts more.
        const FEW: usize = 3;
        let axes = axes(view.space);
        let scores: Vec<f64> = known.scored.iter().map(|(_, score)| *score).collect();
        let earlier = lessons.first().filter(|_| scores.len() < FEW).and_then(|lesson| lesson.spread);
        let expected = if physics.is_some() { EXPECTED } else { earlier.unwrap_or(EXPECTED_ANYWHERE) };
        let scale = Scale::of(view.objective, &scores, expected);
        let kept = representatives(&known.scored, MOST_FITTED);
        let data = data(view, &axes, &scale, &kept);
        let history = History { space: view.space, axes: &axes, scale: &scale, data, scored: &kept, is_its_turn };
        let (mean, fitted) = Mean::most_likely(&history, physics, lessons);
        Self { axes, scale, shape: fitted.shape, mean }
    }

    pub(super) fn learns_from_earlier(&self) -> bool {
        matches!(self.mean, Mean::Earlier(..))
    }
}

/// An expected improvement, in standard units, that counts as none: a process that expects no improvement anywhere is
/// often more certain than its few trials justify.
const LITTLE: f64 = 0.01;
/// The factor that enlarges the deviations of such a process. On 8 recorded tables of kernels and pipelines (30 seeds), it reduced
/// the distance to the best after 20, 30 and 40 probes. The distance fell from 7.6%, 4.4% and 2.9% to 7.2%, 4.3% and 2.7%. On the
/// full grids among the tables, it fell from 6.6%, 2.8% and 1.8% to 5.7%, 2.6% and 1.7%.
const DEVIATIONS_IN_DOUBT: f64 = 1.5;

/// After this many trials in a row without a new best, the process is in doubt even if it expects a new best. With 6, searches of
/// five recorded tables of kernels and pipelines came to 1.6% below the best after 60 probes (20 seeds). They came to 2.2% if only
/// a small expected improvement started [`plateau`] proposals. A value of 10 was no better than that.
const STALLED: usize = 6;

/// A config that needs no new process is preferred if its expected improvement is at least this share of the largest. A round
/// number, far within the error of the expectation.
const AS_GOOD: f64 = 0.95;

impl Model {
    /// Returns the best candidate; `None` if no process can be made from the history, or no candidate is open.
    pub(super) fn propose(
        &self,
        view: &View<'_>,
        known: &Known<'_>,
        candidates: &[Chunk],
        memory: Option<&MemoryNeed>,
        limits: Limits,
    ) -> Option<Proposal> {
        let (axes, scale) = (&self.axes, &self.scale);
        let left = |config: &Config, score: f64| self.mean.left(view.space, config, score, scale);
        let kept = representatives(&known.scored, limits.known);
        let mut data = data(view, axes, scale, &kept);
        data.values = kept.iter().map(|(trial, score)| left(&trial.config, *score)).collect();
        let shown = view.under_way().filter_map(|(config, so_far)| Some((config, so_far?)));
        let shown: Vec<(&Config, SoFar)> = shown.collect();
        let silent = view.under_way().filter(|(_, so_far)| so_far.is_none()).map(|(config, _)| config);
        let silent: Vec<&Config> = silent.collect();
        let mut configs: Vec<&Config> = kept.iter().map(|(trial, _)| &trial.config).collect();
        if !shown.is_empty() {
            // Probes under way count with their results so far.
            data.values.extend(shown.iter().map(|(config, so_far)| left(config, so_far.score)));
            data.noise.extend(shown.iter().map(|(_, so_far)| scale.variance(so_far.score, so_far.half_width)));
            configs.extend(shown.iter().map(|(config, _)| config));
            data.points = Points::of(view.space, axes, configs.iter().copied());
        }
        if !silent.is_empty() {
            // Probes without results count as known, with their expected values.
            let pending = Points::of(view.space, axes, silent.iter().copied());
            let process = self.process(&data)?;
            let factors = process.factors(&pending);
            let expected: Vec<f64> =
                (0..pending.len()).map(|at| process.belief(&factors, pending.point(at)).mean).collect();
            configs.extend(silent);
            data.points = Points::of(view.space, axes, configs.iter().copied());
            data.noise.resize(data.noise.len() + expected.len(), 0.0);
            data.values.extend(expected);
        }
        let process = self.process(&data)?;
        let feasibility = feasibility(view, known, axes, memory, limits.known);
        let (best, top) = view.best().or_else(|| known.scored.first().copied())?;
        let mut judge = Judge {
            space: view.space,
            process: &process,
            feasibility: feasibility.as_ref(),
            best: shown.iter().map(|(_, so_far)| scale.value(so_far.score)).fold(scale.value(top), f64::max),
            doubt: 1.0,
            offset: &|config| self.mean.uncertain(view.space, config, scale),
            reads: &self.mean.reads(view.space),
            fits: &|config| memory.map_or(1.0, |memory| memory.chance(view.space, config)),
            others: &|config, into| self.mean.others(view.space, config, scale, into),
            most_refined: limits.refined,
        };
        let (choice, aside) = choose(view, known, candidates, &mut judge, (&best.config, top))?;
        Some(explained(view, scale, (&best.config, top), choice, aside))
    }

    /// Makes the process from the data: with the fitted shape, or if that fails with the shape of the priors.
    fn process(&self, data: &Data) -> Option<Process> {
        let fitted = Process::new(data, &self.axes, &self.shape);
        fitted.or_else(|| Process::new(data, &self.axes, &fit::unfitted(&self.axes)))
    }
}

/// Returns the candidate to propose. If it comes from [`plateau`], also returns the reason as a phrase.
fn choose(
    view: &View<'_>,
    known: &Known<'_>,
    candidates: &[Chunk],
    judge: &mut Judge<'_>,
    (best, top): (&Config, f64),
) -> Option<(Choice, Option<&'static str>)> {
    let mut choice = judge.choose(candidates, |config| view.is_open(config))?;
    let mut aside = None;
    let since_best = known.scored.iter().rev().take_while(|(_, score)| *score < top).count();
    // The reported expectation is the process's own, without the doubt.
    let improvement = choice.improvement;
    if improvement < LITTLE || since_best >= STALLED {
        judge.doubt = DEVIATIONS_IN_DOUBT;
        if let Some((other, why)) = plateau::step(view, known, best, candidates, judge) {
            (choice, aside) = (Choice { improvement, ..other }, Some(why));
        } else if improvement < LITTLE {
            choice = Choice { improvement, ..judge.choose(candidates, |config| view.is_open(config))? };
        }
    }
    if aside.is_none()
        && let Some(last) = view.last_in_process()
        && !view.space.may_follow(&choice.config, last)
        && let Some(near) =
            judge.choose(candidates, |config| view.is_open(config) && view.space.may_follow(config, last))
        && near.improvement >= choice.improvement * AS_GOOD
    {
        choice = near;
    }
    Some((choice, aside))
}

fn data(view: &View<'_>, axes: &[Axis], scale: &Scale, scored: &[&(&Trial, f64)]) -> Data {
    let variance = |(trial, score): &(&Trial, f64)| {
        let half = trial.outcome.measurement().and_then(|run| view.half_width(run));
        half.map_or(0.0, |half| scale.variance(*score, half))
    };
    Data {
        points: Points::of(view.space, axes, scored.iter().map(|(trial, _)| &trial.config)),
        values: scored.iter().map(|(_, score)| scale.value(*score)).collect(),
        noise: scored.iter().map(|entry| variance(entry)).collect(),
    }
}

/// Makes the model that predicts which configs run. Failures that a lack of memory explains do not count.
fn feasibility(
    view: &View<'_>,
    known: &Known<'_>,
    axes: &[Axis],
    memory: Option<&MemoryNeed>,
    most: usize,
) -> Option<Feasibility> {
    let is_explained = |trial: &Trial| memory.is_some_and(|memory| memory.explains(view.space, view.objective, trial));
    let kept: Vec<&Trial> = known.trials.iter().copied().filter(|trial| !is_explained(trial)).collect();
    let kept = &kept[kept.len().saturating_sub(most)..];
    let ran: Vec<bool> = kept.iter().map(|trial| view.objective.score_of(&trial.outcome).is_some()).collect();
    let points = Points::of(view.space, axes, kept.iter().map(|trial| &trial.config));
    Feasibility::of(points, &ran, axes)
}

/// Selects trials to stand for all: the best half, and an even share of the rest, oldest first.
fn representatives<'k, 'v>(scored: &'k [(&'v Trial, f64)], most: usize) -> Vec<&'k (&'v Trial, f64)> {
    let mut order: Vec<usize> = (0..scored.len()).collect();
    order.sort_by(|&a, &b| scored[b].1.total_cmp(&scored[a].1).then(a.cmp(&b)));
    let mut kept: Vec<usize> = spread(scored.len(), most).into_iter().map(|at| order[at]).collect();
    kept.sort_unstable();
    kept.into_iter().map(|at| &scored[at]).collect()
}

/// Makes the proposal, with the expected gain in a phrase.
fn explained(
    view: &View<'_>,
    scale: &Scale,
    (best, top): (&Config, f64),
    choice: Choice,
    aside: Option<&str>,
) -> Proposal {
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
    let reason = aside.map_or(reason.clone(), |why| format!("{reason}; {why}"));
    // Scores near the largest float have differences that are not finite.
    let gain = Some(scale.gain(top, choice.improvement)).filter(|gain| gain.is_finite());
    Proposal { reason: Some(reason), gain, ..choice.config.into() }
}

/// Describes how a config differs from the best one.
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
