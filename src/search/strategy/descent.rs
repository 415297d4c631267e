//! Moves from the baseline towards better configs, one parameter at a time, neighbours first.
//!
//! It is a pattern search on a grid (Hooke and Jeeves, "Direct search solution of numerical and statistical problems", JACM 1961).
//! From the best config so far, it first repeats the step that brought the last improvement. Then it tries each parameter's
//! neighbours, longer steps along one parameter, and neighbours of neighbours. When all of these are known, it continues at random.

use super::{Entry, Proposal, Strategy, View, random};
use crate::model::{Config, Space};

pub(super) const ENTRY: Entry = Entry {
    name: "descent",
    about: "from the baseline, one parameter at a time, neighbours first",
    build: || Box::new(Descent),
};

#[derive(Debug, Default)]
pub(super) struct Descent;

impl Strategy for Descent {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        let first = view.narrowed().and_then(|narrow| in_turn(&narrow));
        first.map(|config| Proposal::from(config).among_first()).or_else(|| next(view).map(Proposal::from))
    }
}

/// Returns the neighbours, and then the other settings, of the best config in the parameters that come first.
fn in_turn(view: &View<'_>) -> Option<Config> {
    let (best, _) = view.best()?;
    open(view, near(view, &best.config, 1)).or_else(|| open(view, near(view, &best.config, u32::MAX)))
}

fn next(view: &View<'_>) -> Option<Config> {
    let first = || view.start.cloned().or_else(|| view.space.first());
    let Some((best, _)) = view.best() else {
        // Nothing has fitted yet: try the start, then configs with less and less memory, then whatever is near.
        let start = first()?;
        return open(view, std::iter::once(start.clone()))
            .or_else(|| open(view, shrunk(view.space, &start).into_iter()))
            .or_else(|| open(view, near(view, &start, 1)))
            .or_else(|| random::propose(view));
    };
    let best = &best.config;
    let again = previous_best(view).and_then(|before| repeated_step(view.space, &before, best));
    open(view, again.into_iter())
        .or_else(|| open(view, near(view, best, 1)))
        .or_else(|| open(view, near(view, best, 2)))
        .or_else(|| open(view, near(view, best, u32::MAX)))
        .or_else(|| {
            let around = view.space.neighbours(best);
            open(view, around.iter().flat_map(|neighbour| view.space.neighbours(neighbour)))
        })
        .or_else(|| random::propose(view))
}

fn open(view: &View<'_>, mut candidates: impl Iterator<Item = Config>) -> Option<Config> {
    candidates.find(|config| view.is_open(config))
}

/// Returns moves along one parameter at a time, by at most `reach` steps.
fn near<'v>(view: &'v View<'_>, config: &'v Config, reach: u32) -> impl Iterator<Item = Config> + 'v {
    // A long range is not listed as a whole: the random part looks beyond these steps.
    let reach = reach.min(64);
    (0..view.space.parameters().len()).flat_map(move |at| view.space.moves(config, at, reach))
}

/// Returns the config that was best before the best trial was made.
fn previous_best(view: &View<'_>) -> Option<Config> {
    let (best, top) = view.best()?;
    let may_win = |outcome: &_| view.objective.score_of(outcome).is_some();
    let scores = view.history.contenders(may_win).take_while(|trial| trial.number != best.number);
    scores
        .filter_map(|trial| Some((trial, view.objective.score_of(&trial.outcome)?)))
        .filter(|(_, score)| *score < top)
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(trial, _)| trial.config.clone())
}

/// Returns the same step once more, if it was a step in one number.
fn repeated_step(space: &Space, before: &Config, best: &Config) -> Option<Config> {
    let mut changed = (0..space.parameters().len()).filter(|&at| before.level(at) != best.level(at));
    let (at, None) = (changed.next()?, changed.next()) else { return None };
    let (from, to) = (before.level(at)?, best.level(at)?);
    let next = i64::from(to) + (i64::from(to) - i64::from(from));
    let next = u32::try_from(next).ok().filter(|&next| u64::from(next) < space.parameters()[at].len())?;
    space.parameters()[at].is_ordinal().then(|| space.with_level(best, at, next))?
}

/// Returns the config with the parameters that memory grows with halved repeatedly, in steps of their levels.
fn shrunk(space: &Space, start: &Config) -> Vec<Config> {
    use crate::model::MemoryRole;
    let mut configs = Vec::new();
    for (at, parameter) in space.parameters().iter().enumerate() {
        if parameter.memory_role() == MemoryRole::Grows {
            let level = start.level(at).unwrap_or(0);
            let with = |smaller| space.with_level(start, at, smaller).or_else(|| space.detour(start, at, smaller));
            configs.extend((0..level).rev().filter_map(with));
        }
    }
    configs
}
