//! Proposes the first configs, while the history is too short to learn from.

use super::Known;
use super::candidates::{Chunk, shuffled};
use super::points::{Points, axes};
use crate::model::{Config, MemoryRole, Parameter, Permutation};
use crate::search::strategy::{View, random};

/// Proposes the start, then configs far from the known configs.
pub(super) fn first(view: &View<'_>, known: &Known<'_>, candidates: &[Chunk]) -> Option<Config> {
    // The best config of an earlier study does not count as the start: it may be far from all good configs here.
    let tried = view.history.trials().len() + view.pending.len();
    if tried == 0 || tried == 1 && view.start.is_none() && !view.earlier.is_empty() {
        let start = view.start.cloned().or_else(|| middle(view, candidates));
        if start.as_ref().is_some_and(|start| view.is_open(start)) {
            return start;
        }
    }
    let retreat = if known.scored.is_empty() { retreat(view) } else { None };
    retreat.or_else(|| farthest(view, candidates)).or_else(|| random::propose(view))
}

/// Returns the open config nearest to the middle of every parameter.
fn middle(view: &View<'_>, candidates: &[Chunk]) -> Option<Config> {
    /// The largest random addition to the distance from the middle, so that seeds have different starts: a round number.
    const JITTER: f64 = 0.02;
    let offset = |config: &Config| -> f64 {
        let parameters = view.space.parameters().iter().zip(config.levels());
        let square = |(parameter, level): (&Parameter, Option<u32>)| {
            if !parameter.is_ordinal() {
                return f64::from(u8::from(level != Some(0)));
            }
            let share = |levels: u64| levels as f64 / parameter.len().saturating_sub(1).max(1) as f64;
            // The larger of two middle settings counts as the middle, since most numbers are resources.
            let place = share(level.unwrap_or(0).into()) - share(parameter.len() / 2);
            place * place
        };
        parameters.map(square).sum()
    };
    let open = candidates.iter().flat_map(|chunk| &chunk.configs).filter(|config| view.is_open(config));
    let order = Permutation::new(1 << 32, view.seed);
    let chance = |number| order.at(number).unwrap_or(0) as f64 / (1_u64 << 32) as f64;
    open.zip(1..)
        .map(|(config, number)| (offset(config) + JITTER * chance(number), config))
        .min_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, config)| config.clone())
}

/// Returns the last config that did not fit, with half the level in every parameter that memory grows with.
fn retreat(view: &View<'_>) -> Option<Config> {
    let (failed, _) = view.walls().last()?;
    let mut config = (*failed).clone();
    let space = view.space;
    for (at, parameter) in space.parameters().iter().enumerate() {
        if parameter.memory_role() == MemoryRole::Grows
            && let Some(half) = config.level(at).filter(|level| *level > 0).map(|level| level / 2)
            && let Some(changed) = space.with_level(&config, at, half).or_else(|| space.detour(&config, at, half))
        {
            config = changed;
        }
    }
    view.is_open(&config).then_some(config)
}

/// Returns the config that is farthest from all tried configs, among some random open configs.
fn farthest(view: &View<'_>, candidates: &[Chunk]) -> Option<Config> {
    /// A round number, as a bound on the time of a proposal.
    const DRAWS: usize = 60;
    let drawn = shuffled(candidates, view.seed_of_draw());
    let drawn: Vec<&Config> = drawn.filter(|config| view.is_open(config)).take(DRAWS).collect();
    let tried: Vec<&Config> = view.history.trials().iter().map(|trial| &trial.config).chain(view.pending).collect();
    let axes = axes(view.space);
    let points = Points::of(view.space, &axes, drawn.iter().chain(&tried).copied());
    let nearest = |at: usize| {
        let distances = (drawn.len()..points.len()).map(|other| points.distances(&axes, at, other));
        distances.fold(f64::INFINITY, f64::min)
    };
    let best = (0..drawn.len()).max_by(|&a, &b| nearest(a).total_cmp(&nearest(b)).then(b.cmp(&a)))?;
    Some(drawn[best].clone())
}
