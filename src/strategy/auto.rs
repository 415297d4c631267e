//! Everything where the budget allows it, else descent.

use super::{Entry, Strategy, View, descent::Descent, fits, grid::Grid};
use crate::space::{Config, Count};

pub(super) const ENTRY: Entry = Entry {
    name: "auto",
    about: "grid where the budget covers the whole space, else descent",
    build: || Box::new(Auto::default()),
};

#[derive(Debug, Default)]
struct Auto {
    grid: Grid,
    descent: Descent,
    count: Option<Count>,
}

impl Strategy for Auto {
    fn propose(&mut self, view: &View<'_>) -> Option<Config> {
        let count = *self.count.get_or_insert_with(|| view.space.count());
        let searched = u32::try_from(view.history.searched().count() + view.pending.len()).unwrap_or(u32::MAX);
        if fits(count, view.probes_left.saturating_add(searched)) {
            self.grid.propose(view)
        } else {
            self.descent.propose(view)
        }
    }
}
