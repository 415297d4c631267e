//! Lists all allowed settings of some parameters by bounded backtracking, and looks ahead in such lists.

use std::ops::Range;
use std::sync::Arc;

use crate::model::space::plan::{Plan, Slots};
use crate::model::space::{INACTIVE, Space};

/// The most rows of a listing: a round number, as a bound on memory. `bayes` scores as many configs.
const MOST_ROWS: usize = 100_000;

/// The bound on the work of a listing; see [`Plan::cost`]. A round number: about a tenth of a second.
const FUEL: u64 = 400_000;

/// All allowed settings of some parameters, as sorted rows of levels.
#[derive(Debug)]
pub(super) struct Listing {
    /// The parameter of each column.
    pub(super) order: Vec<usize>,
    rows: Vec<Box<[u32]>>,
}

impl Listing {
    /// Lists the parameters of a plan; `None` if that takes too much work or memory.
    pub(super) fn of(space: &Space, plan: &Plan) -> Option<Self> {
        let mut search = Backtracking { space, plan, slots: Slots::new(space), fuel: FUEL, rows: Vec::new() };
        search.descend(0)?;
        Some(Self { order: plan.order.clone(), rows: search.rows })
    }

    /// Returns the same settings with the columns in another order.
    pub(super) fn reordered(&self, order: &[usize]) -> Self {
        let column = |parameter: &usize| self.order.iter().position(|known| known == parameter);
        let columns: Vec<usize> = order.iter().filter_map(column).collect();
        let reordered = |row: &[u32]| columns.iter().map(|&column| row[column]).collect();
        let mut rows: Vec<Box<[u32]>> = self.rows.iter().map(|row| reordered(row)).collect();
        rows.sort_unstable();
        Self { order: order.to_vec(), rows }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the rows of a range that have a level in a column. The rows of the range must agree in all earlier columns.
    pub(super) fn narrowed(&self, within: &Range<usize>, column: usize, level: u32) -> Range<usize> {
        let rows = &self.rows[within.clone()];
        let start = rows.partition_point(|row| row[column] < level);
        let end = rows.partition_point(|row| row[column] <= level);
        within.start + start..within.start + end
    }

    /// Returns the row that has a given share of the remaining rows before it in each column. Uniform shares give uniform
    /// rows.
    pub(super) fn at_shares(&self, share: &mut dyn FnMut(usize) -> f64) -> Option<&[u32]> {
        let mut left = 0..self.rows.len();
        for (column, &parameter) in self.order.iter().enumerate() {
            let place = left.start + place_at(share(parameter), left.len());
            left = self.narrowed(&left, column, self.rows.get(place)?[column]);
        }
        self.rows.get(left.start).map(|row| &**row)
    }
}

/// Returns the place at a share of a length.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "a share")]
pub(super) fn place_at(share: f64, len: usize) -> usize {
    ((share.clamp(0.0, 1.0) * len as f64) as usize).min(len.saturating_sub(1))
}

struct Backtracking<'s> {
    space: &'s Space,
    plan: &'s Plan,
    slots: Slots,
    fuel: u64,
    rows: Vec<Box<[u32]>>,
}

impl Backtracking<'_> {
    /// Tries all settings of the parameters from a depth on; `None` once a bound is reached.
    fn descend(&mut self, depth: usize) -> Option<()> {
        let Some(&parameter) = self.plan.order.get(depth) else {
            self.rows.push(self.plan.order.iter().map(|&parameter| self.slots.levels[parameter]).collect());
            return (self.rows.len() <= MOST_ROWS).then_some(());
        };
        let last = u32::try_from(self.space.parameters[parameter].len() - 1).ok()?;
        let is_active = self.plan.is_active(self.space, &self.slots, depth);
        for level in if is_active { 0..=last } else { INACTIVE..=INACTIVE } {
            self.fuel = self.fuel.checked_sub(self.plan.cost(depth))?;
            if self.plan.assign(self.space, &mut self.slots, depth, level).is_ok() {
                self.descend(depth + 1)?;
            }
        }
        Some(())
    }
}

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
