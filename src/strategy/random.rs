//! Configs in random order, each at most once.
//!
//! Every proposal is a draw of its own among what is open, so that it needs no memory of earlier ones.

use super::{Entry, Proposal, Strategy, View, grid::Grid};
use crate::space::{Config, Permutation, Walk};

pub(super) const ENTRY: Entry =
    Entry { name: "random", about: "uniformly at random, without replacement", build: || Box::new(Random) };

#[derive(Debug)]
struct Random;

impl Strategy for Random {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        propose(view).map(Proposal::from)
    }
}

/// A random config among the open ones.
pub(super) fn propose(view: &View<'_>) -> Option<Config> {
    propose_among(view, &|config| view.is_open(config))
}

/// A random config among the wanted ones, all of which must be open.
pub(super) fn propose_among(view: &View<'_>, is_wanted: &dyn Fn(&Config) -> bool) -> Option<Config> {
    drawn(view, is_wanted).or_else(|| rare(view, seed_of_draw(view), is_wanted))
}

/// Draws before open configs are taken to be rare, and before those are that the rules allow and that may fit.
const DRAWS: u128 = 1 << 17;
const FIRST_DRAWS: u128 = 1 << 12;

/// A random config among the wanted ones, unless they are rare.
pub(super) fn drawn(view: &View<'_>, is_wanted: &dyn Fn(&Config) -> bool) -> Option<Config> {
    let size = view.space.raw_size()?;
    let order = Permutation::new(size, seed_of_draw(view));
    let mut is_any_allowed = false;
    for place in 0..size.min(DRAWS) {
        if place == FIRST_DRAWS && !is_any_allowed {
            return None;
        }
        let Some(config) = order.at(place).and_then(|index| view.space.config(index)) else { continue };
        is_any_allowed |= !view.is_ruled_out(&config);
        if is_wanted(&config) {
            return Some(config);
        }
    }
    None
}

/// Another one for each proposal of each search.
pub(super) fn seed_of_draw(view: &View<'_>) -> u64 {
    let number = view.history.trials().len() + view.pending.len();
    let draw = Permutation::new(1 << 64, view.seed).at(number as u128).unwrap_or(0);
    u64::try_from(draw).unwrap_or(0)
}

/// Where the rules leave so little that chance does not hit it: walks with settings in random order, dead ends cut.
///
/// A few short ones, some of which may start where nothing is; then the walk of `grid`, which misses nothing.
fn rare(view: &View<'_>, seed: u64, is_wanted: &dyn Fn(&Config) -> bool) -> Option<Config> {
    const WALKS: u64 = 8;
    const PATIENCE: u64 = 4_000;
    let by_chance = (0..WALKS).find_map(|number| {
        let mut walk = Walk::shuffled(view.space, seed.wrapping_add(number));
        std::iter::from_fn(|| walk.next_around(view.walls(), PATIENCE)).find(|config| is_wanted(config))
    });
    by_chance.or_else(|| Grid::default().next_among(view, is_wanted))
}
