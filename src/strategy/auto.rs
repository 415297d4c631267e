//! Everything where the budget allows it, else descent.

use super::{Entry, Proposal, Strategy, View, descent::Descent, grid::Grid};
use crate::space::Count;

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
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        let searched = view.history.searched().count() + view.pending.len();
        let budget = u128::from(view.probes_left) + searched as u128;
        let fits_whole = view.space.raw_size().is_some_and(|size| size <= budget);
        if fits_whole || self.count.get_or_insert_with(|| view.space.count()).fits(budget) {
            self.grid.propose(view)
        } else {
            self.descent.propose(view)
        }
    }
}
