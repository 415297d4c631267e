//! Simulated annealing: a walk from neighbour to neighbour that also accepts worse configs, but less and less often.
//!
//! It follows Kirkpatrick, Gelatt and Vecchi, "Optimization by simulated annealing", Science 1983. A step that is worse by d is
//! accepted with the probability exp(-d / T) (Metropolis), and the temperature T falls geometrically. Here d is the logarithm of
//! the ratio of the scores, so a temperature is a share of the speed. If scores have no logarithm, d is their difference in units
//! of their mean size.
//!
//! The walk is replayed from the history for every proposal, with separate random numbers for each trial. So `argmin`'s solver is
//! not used: it hides its state, drives the search instead of answering, and takes all random numbers from one generator. Its next
//! step depends on more than the history.

use super::{Entry, Proposal, Strategy, View, random};
use crate::model::{Config, Outcome, Permutation, Space};

pub(super) const ENTRY: Entry = Entry {
    name: "anneal",
    about: "simulated annealing: from neighbour to neighbour, for the worse too, ever more rarely",
    build: || Box::new(Anneal),
};

#[derive(Debug)]
struct Anneal;

/// The number of random configs among which the walk begins at the best, unless a start is given. A round number.
const FIRST: usize = 5;

/// The temperature at the beginning and at the end: a config that is worse by this share is accepted with the
/// probability 1/e. Round numbers.
const HOT: f64 = 0.1;
const COLD: f64 = 0.005;

/// The longest step along a parameter: a long range is not listed as a whole.
const LONGEST: u32 = 8;

/// The number of trials over which the temperature falls if the budget has no end: a round number.
const UNLIMITED: f64 = 200.0;

impl Strategy for Anneal {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        next(view).map(Proposal::from)
    }
}

fn next(view: &View<'_>) -> Option<Config> {
    if let Some(start) = view.start.filter(|start| view.is_open(start)) {
        return Some(start.clone());
    }
    let known = view.history.count_searched() + view.pending.len();
    if view.start.is_none() && known < FIRST {
        return random::propose(view);
    }
    let seed = view.seed_of_draw();
    let from = |config: &Config| near(view, config, 1, seed).or_else(|| near(view, config, LONGEST, seed));
    let best = || view.best().map(|(trial, _)| &trial.config);
    // If all neighbours are known, the best config may have some left; if not, the walk starts anew.
    walked_to(view).and_then(from).or_else(|| best().and_then(from)).or_else(|| random::propose(view))
}

/// Returns an open config that differs by at most `reach` steps in one parameter. Draws the parameter first, then the
/// config.
fn near(view: &View<'_>, config: &Config, reach: u32, seed: u64) -> Option<Config> {
    let shuffled = |len: usize, seed: u64| {
        let order = Permutation::new(len as u128, seed);
        (0..len as u128).filter_map(move |place| usize::try_from(order.at(place)?).ok())
    };
    shuffled(view.space.parameters().len(), seed).find_map(|at| {
        let around = view.space.moves(config, at, reach);
        let mut places = shuffled(around.len(), seed.wrapping_add(at as u64));
        places.find_map(|place| around.get(place).filter(|config| view.is_open(config)).cloned())
    })
}

/// Returns a pseudorandom number from 0 to below 1.
fn share(seed: u64) -> f64 {
    const PARTS: u128 = 1 << 53;
    Permutation::new(PARTS, seed).at(0).unwrap_or(0) as f64 / PARTS as f64
}

/// Returns the config that the walk has reached: `None` until a trial ran.
fn walked_to<'v>(view: &View<'v>) -> Option<&'v Config> {
    let searched = view.history.searched().enumerate();
    let scored: Vec<(usize, &Config, f64)> = searched
        .filter(|(_, trial)| !matches!(trial.outcome, Outcome::Disturbed(_) | Outcome::Interrupted))
        .filter_map(|(number, trial)| Some((number, &trial.config, view.objective.score_of(&trial.outcome)?)))
        .collect();
    let scale = Scale::of(scored.iter().map(|(_, _, score)| *score));
    let planned = match view.probes_left {
        u32::MAX => UNLIMITED,
        left => (view.history.count_searched() + view.pending.len()) as f64 + f64::from(left),
    };
    let mut walk: Option<(&Config, f64)> = None;
    for (number, config, score) in scored {
        // A distant config restarts the walk. Among the first configs, the best is the start.
        let moves = walk.is_none_or(|(at, height)| {
            let is_restart = number >= FIRST && !is_one_step(view.space, at, config);
            let cooled = (number as f64 / planned).min(1.0);
            let temperature = if number < FIRST { 0.0 } else { HOT * libm::pow(COLD / HOT, cooled) };
            let seed = view.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number as u64);
            is_restart || is_taken(scale.loss(height, score), temperature, share(seed))
        });
        if moves {
            walk = Some((config, score));
        }
    }
    walk.map(|(config, _)| config)
}

/// Decides by Metropolis' rule whether to accept a step.
fn is_taken(loss: f64, temperature: f64, draw: f64) -> bool {
    loss <= 0.0 || temperature > 0.0 && draw < libm::exp(-loss / temperature)
}

/// Returns true if two configs differ by a step of the walk in a parameter that is active in both. Further parameters may differ if
/// rules change them with it. Parameters that the change switches on or off do not count.
fn is_one_step(space: &Space, from: &Config, to: &Config) -> bool {
    let both = from.levels().zip(to.levels()).enumerate();
    let changed: Vec<(usize, u32)> = both
        .filter_map(|(at, (from, to))| from.zip(to).filter(|(from, to)| from != to).map(|(_, to)| (at, to)))
        .collect();
    let is_detour = |(at, level): &(usize, u32)| {
        space.with_level(from, *at, *level).is_none() && space.detour(from, *at, *level).as_ref() == Some(to)
    };
    changed.len() <= 1 || changed.iter().any(is_detour)
}

#[derive(Debug, Clone, Copy)]
enum Scale {
    /// By their logarithms.
    Ratio,
    /// By their difference, divided by this size.
    Difference(f64),
}

impl Scale {
    fn of(scores: impl Iterator<Item = f64> + Clone) -> Self {
        // If all scores are negative, as costs are, their ratios serve as well.
        let same_sign = scores.clone().all(|score| score > 0.0) || scores.clone().all(|score| score < 0.0);
        if same_sign {
            return Self::Ratio;
        }
        // Dividing by a thousand keeps the sum of very large scores finite.
        let (sum, count) = scores.fold((0.0, 0.0), |(sum, count), score| (sum + score.abs() / 1e3, count + 1.0));
        Self::Difference((sum / count * 1e3).max(f64::MIN_POSITIVE))
    }

    /// Returns by how much the second score is worse; negative if it is better.
    fn loss(self, from: f64, to: f64) -> f64 {
        match self {
            Self::Ratio if from > 0.0 => libm::log(from) - libm::log(to),
            Self::Ratio => libm::log(-to) - libm::log(-from),
            Self::Difference(size) => from / size - to / size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_better_is_taken_always_and_what_is_worse_the_more_often_the_hotter_it_is() {
        assert!(is_taken(-0.1, 0.0, 0.999));
        assert!(!is_taken(0.1, 0.0, 0.0));
        let taken = |temperature| (0..1000).filter(|&seed| is_taken(0.1, temperature, share(seed))).count();
        // exp(-1) is 0.368; the standard deviation of the count is 15.
        assert!((300..440).contains(&taken(0.1)), "{}", taken(0.1));
        assert!(taken(0.02) < 30 && taken(1.0) > 850);
    }

    #[test]
    fn losses_are_shares_whatever_the_unit_and_the_direction() {
        let scores = [100.0, 50.0];
        let loss = |scores: [f64; 2]| Scale::of(scores.iter().copied()).loss(scores[0], scores[1]);
        assert!((loss(scores) - libm::log(2.0)).abs() < 1e-12);
        assert!((loss(scores.map(|score| score * 1e6)) - loss(scores)).abs() < 1e-9);
        assert!((loss([-50.0, -100.0]) - loss(scores)).abs() < 1e-12, "a cost that is twice as high");
        assert_eq!(loss([1.0, -1.0]), 2.0);
        assert!(loss([f64::MAX, -f64::MAX]).is_finite() && loss([0.0, 0.0]) == 0.0);
    }
}
