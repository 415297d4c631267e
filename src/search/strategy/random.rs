//! Proposes configs in random order, each at most once.
//!
//! Every proposal is drawn among the open configs, so the strategy needs no memory of earlier proposals.

use super::{Entry, Proposal, Strategy, View, grid::Grid};
use crate::model::{Config, Walk};

pub(super) const ENTRY: Entry =
    Entry { name: "random", about: "uniformly at random, without replacement", build: || Box::new(Random) };

#[derive(Debug)]
struct Random;

impl Strategy for Random {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        propose(view).map(Proposal::from)
    }
}

pub(super) fn propose(view: &View<'_>) -> Option<Config> {
    let is_open = |config: &Config| view.is_open(config);
    view.drawn(&is_open).or_else(|| rare(view, view.seed_of_draw(), &is_open))
}

/// Finds a config that random draws miss, by walks through settings in random order that cut off dead ends.
///
/// First come a few short walks, which may begin at a dead end. Then comes the walk of `grid`, which misses nothing.
fn rare(view: &View<'_>, seed: u64, is_wanted: &dyn Fn(&Config) -> bool) -> Option<Config> {
    const WALKS: u64 = 8;
    /// The settings that a walk tries in a row without finding a config before it gives up.
    const PATIENCE: u64 = 4_000;
    let by_chance = (0..WALKS).find_map(|number| {
        let mut walk = Walk::shuffled(view.space, seed.wrapping_add(number));
        std::iter::from_fn(|| walk.next_around(view.walls(), PATIENCE)).find(|config| is_wanted(config))
    });
    by_chance.or_else(|| Grid::default().next_among(view, is_wanted))
}

#[cfg(test)]
mod tests {
    use crate::model::{Parameter, Space};

    #[test]
    fn a_step_in_one_parameter_takes_along_those_that_an_equation_ties_to_it() {
        let parameters = [
            Parameter::powers_of_two("batch_size", 1, 1024),
            Parameter::powers_of_two("dp", 1, 64),
            Parameter::values("tp", [1, 2, 4, 8]),
            Parameter::values("pp", [1, 2, 4, 8]),
            Parameter::range("workers", 0, 9_999, 1),
        ];
        let rules = ["dp * tp * pp == 64", "batch_size == 1024 and workers % 5000 == 17"];
        let space = Space::built(parameters, &[], &rules).unwrap();
        let settings = [("batch_size", 1024), ("dp", 16), ("tp", 4), ("pp", 1), ("workers", 17)];
        let config = space.locate(&settings.into_iter().collect()).unwrap();
        let alone = |level| space.with_level(&config, 1, level);
        assert!((0..7).filter(|&level| Some(level) != config.level(1)).all(|level| alone(level).is_none()));
        let moved: Vec<String> = space.moves(&config, 1, 1).iter().map(|moved| space.settings(moved).line()).collect();
        let expected = ["batch_size=1024 dp=32 tp=2 pp=1 workers=17", "batch_size=1024 dp=8 tp=4 pp=2 workers=17"];
        assert_eq!(moved, expected);
    }

    #[test]
    fn draws_are_uniform_where_configs_are_listed() {
        let parameters = ["a", "b"].map(|name| Parameter::range(name, 0, 99, 1));
        let space = Space::built(parameters, &[], &["a + b <= 3"]).unwrap();
        let mut counts = std::collections::BTreeMap::new();
        for config in space.draws(5, 10_000) {
            *counts.entry(config).or_insert(0_u32) += 1;
        }
        // Each of the ten is expected 1000 times, with a standard deviation of 30.
        assert_eq!(counts.len(), 10);
        assert!(counts.values().all(|count| (880..=1120).contains(count)), "{counts:?}");
    }
}
