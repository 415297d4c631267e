//! Configs in random order, each at most once.

use super::{Entry, Strategy, View};
use crate::space::{Advance, Config, Permutation, Space, Walk};

pub(super) const ENTRY: Entry =
    Entry { name: "random", about: "uniformly at random, without replacement", build: || Box::new(Random::default()) };

/// Remembers how many places of the order are used up.
#[derive(Debug, Default)]
struct Random {
    order: Option<(u64, Permutation)>,
    place: u128,
}

/// Places of the order that one proposal looks at before it takes configs to be rare.
const LOOKS: u128 = 100_000;

impl Strategy for Random {
    fn propose(&mut self, view: &View<'_>) -> Option<Config> {
        let Some(size) = view.space.raw_size() else { return rare(view.space, view) };
        if self.order.as_ref().is_none_or(|(seed, _)| *seed != view.seed) {
            self.order = Some((view.seed, Permutation::new(size, view.seed)));
            self.place = 0;
        }
        let (_, order) = self.order.as_ref()?;
        let end = self.place.saturating_add(LOOKS);
        while let Some(index) = order.at(self.place) {
            match view.space.config(index) {
                Some(config) if view.is_open(&config) => return Some(config),
                _ => self.place += 1,
            }
            if self.place >= end {
                return rare(view.space, view);
            }
        }
        None
    }
}

/// Where the rules leave so little that chance does not hit it: walks with settings in random order, dead ends cut.
fn rare(space: &Space, view: &View<'_>) -> Option<Config> {
    const WALKS: u64 = 64;
    const FUEL: u64 = 20_000;
    let first = view.seed ^ (view.history.trials().len() as u64 + view.pending.len() as u64).wrapping_mul(0x9E37_79B9);
    (0..WALKS).find_map(|walk| {
        let mut walk = Walk::shuffled(space, first.wrapping_add(walk << 32));
        let mut fuel = FUEL;
        while let Advance::Found(config) = walk.advance(&mut fuel) {
            if view.is_open(&config) {
                return Some(config);
            }
        }
        None
    })
}
