//! Draws open configs at random, without memory of earlier draws.

use super::View;
use crate::model::{Config, Permutation};

/// Returns a different seed for each proposal of each search.
pub(super) fn seed_of_draw(view: &View<'_>) -> u64 {
    let number = view.history.trials().len() + view.pending.len();
    let draw = Permutation::new(1 << 64, view.seed).at(number as u128).unwrap_or(0);
    u64::try_from(draw).unwrap_or(0)
}

/// Wanted configs count as rare after `DRAWS` draws. They also count as rare if none of the first `FIRST_DRAWS` draws is allowed
/// and may fit. Round numbers.
const DRAWS: u128 = 1 << 17;
const FIRST_DRAWS: u128 = 1 << 12;

/// The number of draws from the configs that the rules allow, if these are a small part of the whole: a round number.
const SPARSE_DRAWS: usize = 256;

/// Draws a random wanted config, unless wanted configs are rare.
pub(super) fn drawn(view: &View<'_>, is_wanted: &dyn Fn(&Config) -> bool) -> Option<Config> {
    if view.space.is_sparse() {
        return view.space.draws(seed_of_draw(view), SPARSE_DRAWS).into_iter().find(|config| is_wanted(config));
    }
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
