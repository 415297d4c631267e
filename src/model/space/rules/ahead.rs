//! Looks ahead from a partial config, so that a walk skips settings that lead to no config.

use std::ops::Range;
use std::sync::Arc;

use super::listing::Listing;

/// The rows that a partial config leaves of each listed group. Groups that are not listed are not looked at.
#[derive(Debug, Default)]
pub(in crate::model::space) struct Ahead {
    groups: Vec<Left>,
    /// The group and the column of each parameter of a listed group.
    columns: Vec<Option<(usize, usize)>>,
}

#[derive(Debug)]
struct Left {
    listing: Arc<Listing>,
    /// The rows that are left before each column that the walk has reached.
    rows: Vec<Range<usize>>,
}

impl Ahead {
    pub(super) fn add(&mut self, listing: Arc<Listing>) {
        for (column, &parameter) in listing.order.iter().enumerate() {
            self.columns.resize(self.columns.len().max(parameter + 1), None);
            self.columns[parameter] = Some((self.groups.len(), column));
        }
        let all = 0..listing.len();
        self.groups.push(Left { listing, rows: vec![all] });
    }

    /// Sets the level of a parameter, in the order of the walk. Returns false if no config follows.
    pub(in crate::model::space) fn enter(&mut self, parameter: usize, level: u32) -> bool {
        let Some((group, column)) = self.columns.get(parameter).copied().flatten() else { return true };
        let Left { listing, rows } = &mut self.groups[group];
        rows.truncate(column + 1);
        let left = listing.narrowed(&rows[column], column, level);
        let leads = !left.is_empty();
        rows.push(left);
        leads
    }
}
