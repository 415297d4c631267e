//! Selects the configs that are scored: all of a space that can be listed, else a sample and the surroundings of the
//! best.

use super::points::{Axis, Points, axes};
use crate::model::{Advance, Config, Permutation, Space, Walk};
use crate::search::strategy::{PATIENCE, View, random};

/// The size of a space up to which all configs are scored: a round number, as a bound on the time of a proposal.
const MOST_LISTED: u128 = 100_000;
/// The number of configs whose kernel factors are kept at a time.
const CHUNK: usize = 2048;

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) configs: Vec<Config>,
    pub(super) points: Points,
}

/// Returns all configs of a space; `None` if they are too many, or so rare that listing takes too long.
pub(super) fn listed(space: &Space) -> Option<Vec<Chunk>> {
    if space.raw_size().is_none_or(|size| size > MOST_LISTED) && !space.count().fits(MOST_LISTED) {
        return None;
    }
    let (mut fuel, mut walk, mut configs) = (PATIENCE, Walk::new(space), Vec::new());
    loop {
        match walk.advance(&mut fuel) {
            Advance::Found(config) => configs.push(config),
            Advance::End => return Some(chunks(space, configs)),
            Advance::OutOfFuel => return None,
        }
    }
}

pub(super) fn chunks(space: &Space, configs: Vec<Config>) -> Vec<Chunk> {
    let axes: Vec<Axis> = axes(space);
    let chunk = |configs: &[Config]| Chunk { points: Points::of(space, &axes, configs), configs: configs.to_vec() };
    configs.chunks(CHUNK).map(chunk).collect()
}

pub(super) fn shuffled(candidates: &[Chunk], seed: u64) -> impl Iterator<Item = &Config> {
    let all: u128 = candidates.iter().map(|chunk| chunk.configs.len() as u128).sum();
    let order = Permutation::new(all, seed);
    (0..all).filter_map(move |place| {
        let mut at = usize::try_from(order.at(place)?).ok()?;
        let mut chunks = candidates.iter();
        loop {
            let chunk = chunks.next()?;
            match chunk.configs.get(at) {
                Some(config) => return Some(config),
                None => at -= chunk.configs.len(),
            }
        }
    })
}

/// Draws a sample of a space that is too large to be listed: random configs, and neighbours of the best configs.
pub(super) fn sample(view: &View<'_>, best: &[&Config], seed: u64) -> Vec<Config> {
    /// Round numbers, as bounds on the time of a proposal.
    const DRAWS: usize = 1000;
    const REACH: u32 = 3;
    const LONGEST: usize = 4000;
    let space = view.space;
    let all = 0..space.parameters().len();
    let around = best.iter().flat_map(|config| all.clone().flat_map(move |at| space.moves(config, at, REACH)));
    let mut found: Vec<Config> = around.take(LONGEST).collect();
    if space.is_sparse() {
        found.extend(space.draws(seed, DRAWS));
    } else if let Some(size) = space.raw_size() {
        let order = Permutation::new(size, seed);
        found.extend((0..size.min(DRAWS as u128)).filter_map(|place| space.config(order.at(place)?)));
    }
    // If draws already come from allowed configs only, walks add nothing.
    let walks = if space.is_sparse() && !found.is_empty() { 0 } else { SHUFFLED };
    let walk = |number| Walk::shuffled(space, seed.wrapping_add(number)).advance(&mut 2_000).found();
    found.extend((0..walks).filter_map(walk));
    found.sort_unstable();
    found.dedup();
    found.retain(|config| view.is_open(config));
    if found.is_empty() {
        found.extend(random::propose(view));
    }
    found
}

/// The number of walks from random places, in spaces where the rules leave little: a round number.
const SHUFFLED: u64 = 16;
