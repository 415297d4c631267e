//! Tries every config, small memory first.
//!
//! If some parameters can change while a process trains, the parameters that need a new process change slowest. So few processes
//! start. Next come the parameters that memory grows with, starting at their smallest setting. So the memory limit is met once in
//! each group, and configs beyond it are never tried. The parameters that memory does not depend on change fastest, so that
//! ruled-out configs are skipped as a block.

use super::{Entry, PATIENCE, Proposal, Strategy, View};
use crate::model::{Config, MemoryRole, Parameter, Space, Walk};

pub(super) const ENTRY: Entry = Entry {
    name: "grid",
    about: "every config; configs that need little memory come first",
    build: || Box::new(Grid::default()),
};

/// The patience in a space that is not listed: each setting then costs an evaluation of rules. A round number.
const UNLISTED_PATIENCE: u64 = 20_000;

/// Remembers the place in the walk up to which each config is probed or ruled out.
#[derive(Debug, Default)]
pub(super) struct Grid {
    /// The first config that was neither probed nor ruled out, and the number of trials at that time.
    reached: Option<(Config, usize)>,
}

impl Strategy for Grid {
    fn propose(&mut self, view: &View<'_>) -> Option<Proposal> {
        // Rules can make a dead end larger than the walk's patience; random draws may still find what lies beyond it.
        let is_open = |config: &Config| view.is_open(config);
        self.next_among(view, &is_open).or_else(|| view.drawn(&is_open)).map(Proposal::from)
    }
}

impl Grid {
    /// Returns the first wanted config. Every wanted config must be open.
    pub(super) fn next_among(&mut self, view: &View<'_>, is_wanted: &dyn Fn(&Config) -> bool) -> Option<Config> {
        let trials = view.history.trials().len();
        let mut walk = Walk::over(view.space, &order(view.space));
        // The number of trials falls only if an instance is used for another search.
        self.reached = self.reached.take().filter(|(_, then)| trials >= *then);
        self.reached.iter().for_each(|(config, _)| walk.seek(config));
        let mut is_first = true;
        let patience = if view.space.is_listed() { PATIENCE } else { UNLISTED_PATIENCE };
        while let Some(config) = walk.next_around(view.walls(), patience) {
            if view.history.is_settled(&config) {
                continue;
            }
            if std::mem::take(&mut is_first) {
                self.reached = Some((config.clone(), trials));
            }
            if is_wanted(&config) {
                return Some(config);
            }
        }
        None
    }
}

/// Returns the order of the walk, with the parameters that change slowest first.
fn order(space: &Space) -> Vec<usize> {
    let mut order: Vec<usize> = (0..space.parameters().len()).collect();
    let is_any_live = space.parameters().iter().any(Parameter::is_live);
    order.sort_by_key(|&at| {
        let parameter = &space.parameters()[at];
        let memory = match parameter.memory_role() {
            MemoryRole::Grows => 0,
            MemoryRole::Unknown => 1,
            MemoryRole::Same => 2,
        };
        (is_any_live && parameter.is_live(), memory)
    });
    order
}
