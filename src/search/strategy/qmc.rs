//! Proposes the points of a scrambled Sobol sequence, which fill the space more evenly than chance does.
//!
//! The direction numbers are from Joe and Kuo ("Constructing Sobol sequences with better two-dimensional projections", SIAM Journal
//! on Scientific Computing 2008). The seed scrambles them as in Burley ("Practical hash-based Owen scrambling", JCGT 2020). Each
//! parameter has a dimension, and a point's coordinate picks the setting; all settings have equal widths. Known points and points
//! that the rules forbid are skipped.
//!
//! If the rules leave little, a setting's width is the share of the remaining configs that have it, so that no point is lost. This
//! is the transformation of Rosenblatt (Annals of Mathematical Statistics 1952). A space of more than 256 parameters uses the
//! dimensions again with another scrambling, which is even only within each block (Burley's padding).

use std::sync::Arc;

use super::random;
use super::{Entry, Proposal, Strategy, View};
use crate::model::{Config, Space};

pub(super) const ENTRY: Entry = Entry {
    name: "qmc",
    about: "a scrambled Sobol sequence: spread evenly, without repeats",
    build: || Box::new(Qmc::default()),
};

/// The number of points in the sequence.
const LENGTH: u32 = 1 << 16;

/// The number of points that may be skipped for each trial, and in addition once, before a random open config is taken.
/// Round numbers.
const PER_TRIAL: u32 = 8;
const AT_FIRST: u32 = 1 << 12;

/// Remembers the point up to which all points lead to nothing new.
#[derive(Debug, Default)]
struct Qmc {
    /// The space, the seed, the number of trials, and the first point that was not known then.
    reached: Option<(Arc<()>, u64, usize, u32)>,
}

impl Strategy for Qmc {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        let trials = view.history.trials().len();
        let before = self.reached.take().filter(|(space, seed, then, _)| {
            Arc::ptr_eq(space, view.space.identity()) && *seed == view.seed && *then <= trials
        });
        let most = u32::try_from(trials + view.pending.len())
            .map_or(LENGTH, |known| known.saturating_mul(PER_TRIAL).saturating_add(AT_FIRST).min(LENGTH));
        for place in before.map_or(0, |(.., place)| place)..most {
            let Some(config) = point(view.space, place, view.seed) else { continue };
            if view.history.is_settled(&config) {
                continue;
            }
            self.reached.get_or_insert_with(|| (Arc::clone(view.space.identity()), view.seed, trials, place));
            if view.is_open(&config) {
                return Some(config.into());
            }
        }
        random::propose(view).map(Proposal::from)
    }
}

/// Returns the config at a place of the sequence, if the rules allow it.
fn point(space: &Space, place: u32, seed: u64) -> Option<Config> {
    // The sequence takes seeds of 32 bits.
    let seed = u32::try_from((seed ^ (seed >> 32)) & u64::from(u32::MAX)).unwrap_or(0);
    let share = |dimension: u32| {
        let block = dimension / sobol_burley::NUM_DIMENSIONS;
        let seed = seed.wrapping_add(block.wrapping_mul(0x9E37_79B9));
        sobol_burley::sample(place, dimension % sobol_burley::NUM_DIMENSIONS, seed)
    };
    if space.is_sparse() {
        return space.at_shares(|at| u32::try_from(at).map_or(0.0, |dimension| share(dimension).into()));
    }
    let levels = (0_u32..).zip(space.parameters()).map(|(at, parameter)| level_at(parameter.len(), share(at)));
    space.with_levels(&levels.collect::<Vec<u32>>())
}

/// Returns the level at a share of the range, below the last.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "a share")]
fn level_at(levels: u64, share: f32) -> u32 {
    let level = (f64::from(share) * levels as f64) as u64;
    u32::try_from(level.min(levels.saturating_sub(1))).unwrap_or(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Parameter;

    #[test]
    fn the_first_points_meet_every_setting_equally_often() {
        let space = Space::new((0..5).map(|at| Parameter::range(format!("p{at}"), 0, 7, 1))).unwrap();
        for seed in 0..5 {
            for at in 0..5 {
                let mut counts = [0_u32; 8];
                for place in 0..64 {
                    let level = point(&space, place, seed).unwrap().level(at).unwrap();
                    counts[level as usize] += 1;
                }
                assert_eq!(counts, [8; 8], "parameter {at}, seed {seed}");
            }
        }
    }

    #[test]
    fn how_far_it_came_is_not_taken_for_another_space() {
        let spaces =
            [1, 2].map(|_| Space::new([Parameter::range("a", 0, 9, 1), Parameter::range("b", 0, 9, 1)]).unwrap());
        let objective = crate::model::Objective::default();
        let nothing = crate::model::History::default();
        let mut lived = Qmc { reached: Some((Arc::clone(spaces[0].identity()), 3, 0, 50)) };
        let view = View::new(&spaces[1], &objective, &nothing, &[], None).with(9, 3);
        assert_eq!(lived.propose(&view), Qmc::default().propose(&view));
    }

    #[test]
    fn beyond_the_last_dimension_it_goes_on() {
        let space = Space::new((0..300).map(|at| Parameter::range(format!("p{at}"), 0, 9, 1))).unwrap();
        let config = point(&space, 3, 7).unwrap();
        let (first, again): (Vec<_>, Vec<_>) = (0..44).map(|at| (config.level(at), config.level(at + 256))).unzip();
        assert_ne!(first, again);
    }

    #[test]
    fn the_last_level_is_reached_and_none_beyond() {
        assert_eq!(level_at(10, 0.999_999_9), 9);
        assert_eq!(level_at(1, 0.999_999_9), 0);
        assert_eq!(level_at(4, 0.0), 0);
    }
}
