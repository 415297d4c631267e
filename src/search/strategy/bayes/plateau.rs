//! Steps of another kind, for a process that expects no more gain, or whose expected gains do not come. Such a process may be
//! certain and wrong.
//!
//! A process judges the whole space by a few lengths. If a parameter made no difference, or a bad one, wherever it was tried, the
//! process expects the same everywhere. So every second proposal tries a neighbour of the best along parameters that were not
//! changed there. A pattern search does the same (Hooke and Jeeves, "Direct search solution of numerical and statistical problems",
//! 1961). Otherwise, and after these neighbours, come settings that no config has had.

use std::collections::HashSet;

use super::Known;
use super::acquisition::{Choice, Judge};
use super::candidates::{Chunk, chunks};
use crate::model::Config;
use crate::search::strategy::View;

/// The probability to run below which a config is not worth such a step. A round number.
const LIKELY: f64 = 0.5;

/// Returns the config of such a step and the reason for it, in a phrase; `None` if no such step is left.
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
    // All these configs are equally good tries, so configs that need no new process come first.
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

/// Returns the configs one step away from a config along one parameter, without parameters along which such a step was tried.
fn neighbours(view: &View<'_>, known: &Known<'_>, best: &Config) -> Vec<Config> {
    let tried: HashSet<&Config> = known.trials.iter().map(|trial| &trial.config).collect();
    let along = |parameter| view.space.moves(best, parameter, 1);
    let is_new = |around: &Vec<Config>| !around.iter().any(|config| tried.contains(config));
    let mut found: Vec<Config> = (0..view.space.parameters().len()).map(along).filter(is_new).flatten().collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns a function that says whether a config has a setting that no known one has.
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
