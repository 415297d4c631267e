//! Every config, small memory first.
//!
//! The parameters that memory grows with change slowest, from their smallest setting: the edge of what fits is met
//! once in each group, and what lies behind it is ruled out instead of tried.

use super::{Entry, Strategy, View};
use crate::space::{Config, MemoryRole, Space, Walk};

pub(super) const ENTRY: Entry = Entry {
    name: "grid",
    about: "every config, those that need little memory first",
    build: || Box::new(Grid::default()),
};

/// Keeps the configs ahead of the walk that were open when they were fetched; only what is open is ever proposed.
#[derive(Debug, Default)]
pub(super) struct Grid {
    ahead: Vec<Config>,
    fetched: usize,
}

/// Configs fetched at once: each batch walks again from the start, so batches grow with the distance walked.
const FIRST_BATCH: usize = 256;

impl Strategy for Grid {
    fn propose(&mut self, view: &View<'_>) -> Option<Config> {
        loop {
            // What is closed stays closed: trials are never taken back.
            while let Some(config) = self.ahead.pop() {
                if view.is_open(&config) {
                    self.ahead.push(config.clone());
                    return Some(config);
                }
            }
            let batch = FIRST_BATCH.max(self.fetched / 2);
            self.ahead = Walk::over(view.space, &order(view.space)).skip(self.fetched).take(batch).collect();
            self.fetched += self.ahead.len();
            self.ahead.reverse();
            if self.ahead.is_empty() {
                return None;
            }
        }
    }
}

/// The order of the walk: parameters that memory grows with first, so that they change slowest.
fn order(space: &Space) -> Vec<usize> {
    let mut order: Vec<usize> = (0..space.parameters().len()).collect();
    order.sort_by_key(|&at| space.parameters()[at].memory_role() != MemoryRole::Grows);
    order
}
