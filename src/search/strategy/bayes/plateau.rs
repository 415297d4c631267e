//! Proposals for a plateau: the Gaussian process expects no more gain, or its expected gains do not come. It may be certain and
//! wrong.
//!
//! The process has one length scale per parameter for the whole space. If a parameter did not help wherever it was tried, the
//! process expects no help anywhere. So every second proposal is a neighbour of the best config, along a parameter that was not yet
//! changed from there. A pattern search does the same (Hooke and Jeeves, "Direct search solution of numerical and statistical
//! problems", 1961). All other proposals have a setting that was never tried.

use std::collections::HashSet;

use super::Known;
use super::acquisition::{Choice, Judge};
use super::candidates::{Chunk, chunks};
use crate::model::Config;
use crate::search::strategy::View;

/// The least probability of a successful run for which a config is proposed. A round number.
const LIKELY: f64 = 0.5;

/// Returns a proposal and the reason for it, as a phrase; `None` if none is left.
pub(super) fn step(
    view: &View<'_>,
    known: &Known<'_>,
    best: &Config,
    candidates: &[Chunk],
    judge: &Judge<'_>,
) -> Option<(Choice, &'static str)> {
    let is_likely = |choice: &Choice| choice.chance >= LIKELY;
    let last = view.last_in_process();
    let follows = |config: &Config| last.is_some_and(|last| view.space.may_follow(config, last));
    // All these configs are equally good tries, so configs that can run in the current process come first.
    let of = |among: &[Chunk], counts: &dyn Fn(&Config) -> bool| {
        let open = |config: &Config| view.is_open(config) && counts(config);
        let following = judge.choose(among, |config| open(config) && follows(config)).filter(is_likely);
        following.or_else(|| judge.choose(among, open).filter(is_likely))
    };
    let near = || {
        let around = chunks(view.space, neighbours(view, known, best));
        Some((of(&around, &|_| true)?, "a neighbour of the best"))
    };
    let never_tried = || {
        let is_new = has_new_setting(view, known);
        Some((of(candidates, &is_new)?, "a setting that was never tried"))
    };
    let is_turn_of_near = known.trials.len().is_multiple_of(2);
    is_turn_of_near.then(near).flatten().or_else(never_tried)
}

/// Returns the configs one step away from `best` along one parameter. Skips each parameter along which such a step was tried.
fn neighbours(view: &View<'_>, known: &Known<'_>, best: &Config) -> Vec<Config> {
    let tried: HashSet<&Config> = known.trials.iter().map(|trial| &trial.config).collect();
    let along = |parameter| view.space.moves(best, parameter, 1);
    let is_new = |around: &Vec<Config>| !around.iter().any(|config| tried.contains(config));
    let mut found: Vec<Config> = (0..view.space.parameters().len()).map(along).filter(is_new).flatten().collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns a function that says whether a config has a setting that no known config has.
fn has_new_setting(view: &View<'_>, known: &Known<'_>) -> impl Fn(&Config) -> bool + use<> {
    let of_parameter = |at| known.trials.iter().filter_map(|trial| trial.config.level(at)).collect();
    let tried: Vec<HashSet<u32>> = (0..view.space.parameters().len()).map(of_parameter).collect();
    move |config| {
        let mut levels = config.levels().zip(&tried);
        levels.any(|(level, tried)| level.is_some_and(|level| !tried.contains(&level)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Estimate, History, Objective, Parameter, Space};
    use crate::search::tests::measured;

    fn space() -> Space {
        let shared = Parameter::values("shared", [false, true]);
        Space::new([Parameter::range("block", 0, 4, 1), Parameter::range("tile", 0, 4, 1), shared]).unwrap()
    }

    fn history(space: &Space, tried: &[[u32; 3]]) -> History {
        let outcome = || measured(Estimate::interval(10.0, 9.9, 10.1));
        crate::search::tests::history(tried.iter().map(|levels| (space.with_levels(levels).unwrap(), outcome())))
    }

    #[test]
    fn neighbours_are_those_along_parameters_that_were_not_changed_there() {
        let (space, objective) = (space(), Objective::default());
        let history = history(&space, &[[2, 2, 0], [3, 2, 0], [2, 4, 1]]);
        let view = View::new(&space, &objective, &history, &[], None);
        let best = space.with_levels(&[2, 2, 0]).unwrap();
        let found = neighbours(&view, &Known::of(&view), &best);
        let expected = [[2, 1, 0], [2, 2, 1], [2, 3, 0]].map(|levels| space.with_levels(&levels).unwrap());
        assert_eq!(found, expected, "a larger block was tried, so no block is");
    }

    #[test]
    fn a_setting_is_new_until_one_config_had_it() {
        let (space, objective) = (space(), Objective::default());
        let history = history(&space, &[[0, 1, 0], [1, 2, 0], [2, 3, 0], [3, 4, 0]]);
        let view = View::new(&space, &objective, &history, &[], None);
        let is_new = has_new_setting(&view, &Known::of(&view));
        let of = |levels: [u32; 3]| is_new(&space.with_levels(&levels).unwrap());
        assert!(of([4, 1, 0]) && of([0, 0, 0]) && of([0, 1, 1]));
        assert!(!of([3, 1, 0]));
    }
}
