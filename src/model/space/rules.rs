//! Finds the configs that the rules of a space allow: lists, counts and draws them with bounded work.
//!
//! Parameters that no condition, derived value or rule connects are independent, so each group of connected parameters is
//! handled alone. Bounded backtracking lists a group. A group that is too large to list is not counted, and its configs are
//! drawn by rejection: random settings, until the rules allow them.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::permutation::{Draws, mix};
use super::plan::{Graph, Plan, Slots};
use super::{INACTIVE, Space};
use crate::model::quantity::grouped;

/// The bound on the work of a listing, or of one call for draws; see [`Plan::cost`]. About a tenth of a second.
const FUEL: u64 = 400_000;

/// A group of parameters that no expression connects with another group.
#[derive(Debug)]
enum Group {
    /// One parameter that no expression uses.
    Free(usize),
    Listed(Arc<Listing>),
    /// A group with too many settings to list.
    Large(Plan),
}

#[derive(Debug)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// The parameters that a rule or a condition uses.
    tied: BTreeSet<usize>,
    pub(super) is_empty: bool,
    /// Listings in the orders of earlier walks.
    reordered: Mutex<Vec<Arc<Listing>>>,
}

impl Groups {
    pub(super) fn of(space: &Space) -> Self {
        let graph = &space.graph;
        let groups: Vec<Group> = graph.groups().iter().map(|members| group_of(space, graph, members)).collect();
        let is_none = |group: &Group| matches!(group, Group::Listed(listing) if listing.rows.is_empty());
        // A rule without names is part of each listed group.
        let are_free = groups.iter().all(|group| matches!(group, Group::Free(_)));
        let is_refused = || Plan::new(graph, &[0]).assign(space, &mut Slots::new(space), 0, 0).is_err();
        Self {
            is_empty: groups.iter().any(is_none) || are_free && is_refused(),
            tied: graph.rules.iter().chain(&graph.conditions).flatten().copied().collect(),
            groups,
            reordered: Mutex::default(),
        }
    }

    pub(super) fn are_listed(&self) -> bool {
        !self.groups.iter().any(|group| matches!(group, Group::Large(_)))
    }

    /// Returns true if a rule or a condition uses a parameter, so that other parameters may have to change with it.
    pub(super) fn is_tied(&self, parameter: usize) -> bool {
        self.tied.contains(&parameter)
    }

    /// Returns the number of configs, if all groups are listed and the number fits.
    pub(super) fn count(&self, space: &Space) -> Count {
        let size = |group: &Group| match group {
            Group::Free(parameter) => Some(space.parameters[*parameter].len().into()),
            Group::Listed(listing) => Some(listing.rows.len() as u128),
            Group::Large(_) => None,
        };
        let product = |all: u128, group: &Group| all.checked_mul(size(group)?);
        match self.groups.iter().try_fold(1, product) {
            _ if self.is_empty => Count::Exact(0),
            Some(count) => Count::Exact(count),
            None => Count::Unknown,
        }
    }

    /// Returns the config with the given share of the allowed configs before it, in each parameter; `None` if a group is large.
    pub(super) fn at_shares(&self, space: &Space, share: &mut dyn FnMut(usize) -> f64) -> Option<Vec<u32>> {
        self.put_together(space, share, &mut |_| None)
    }

    /// Draws random configs, all with the same probability; fewer once the bound on work is reached.
    pub(super) fn draws(&self, space: &Space, seed: u64, most: usize) -> Vec<Vec<u32>> {
        let of_seed = |seed: u64| Draws(mix(seed ^ 0x5851_F42D_4C95_7F2D));
        let (mut draws, mut others) = (of_seed(seed), of_seed(seed ^ 0xA5A5_A5A5));
        let mut slots = Slots::new(space);
        let mut fuel = FUEL;
        let one = |_| {
            let mut accepted = |plan: &Plan| {
                while fuel > 0 {
                    if is_accepted(space, plan, &mut slots, &mut others, &mut fuel) {
                        return Some(plan.order.iter().map(|&parameter| slots.levels[parameter]).collect());
                    }
                }
                None
            };
            self.put_together(space, &mut |_| draws.share(), &mut accepted)
        };
        (0..most).map_while(one).collect()
    }

    fn put_together(
        &self,
        space: &Space,
        share: &mut dyn FnMut(usize) -> f64,
        large: &mut dyn FnMut(&Plan) -> Option<Vec<u32>>,
    ) -> Option<Vec<u32>> {
        let mut levels = vec![INACTIVE; space.parameters.len()];
        for group in self.groups.iter().filter(|_| !self.is_empty) {
            let mut put = |order: &[usize], found: &[u32]| {
                for (parameter, level) in order.iter().zip(found) {
                    levels[*parameter] = *level;
                }
            };
            match group {
                Group::Free(parameter) => put(&[*parameter], &[level_at(space, *parameter, share(*parameter))]),
                Group::Listed(listing) => put(&listing.order, listing.at_shares(share)?),
                Group::Large(plan) => put(&plan.order, &large(plan)?),
            }
        }
        Some(levels).filter(|_| !self.is_empty)
    }

    /// Looks ahead in a walk that sets the parameters in this order.
    pub(super) fn ahead(&self, order: &[usize]) -> Ahead {
        let mut ahead = Ahead::default();
        for group in &self.groups {
            if let Group::Listed(listing) = group {
                let members: Vec<usize> = order.iter().copied().filter(|at| listing.order.contains(at)).collect();
                ahead.add(self.in_order(listing, &members));
            }
        }
        ahead
    }

    fn in_order(&self, listing: &Arc<Listing>, order: &[usize]) -> Arc<Listing> {
        if listing.order == order {
            return Arc::clone(listing);
        }
        let mut known = self.reordered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter().find(|known| known.order == order) {
            return Arc::clone(known);
        }
        let new = Arc::new(listing.reordered(order));
        known.push(Arc::clone(&new));
        new
    }
}

/// Lists the settings of a group, in the order of the space or else with small parameters first.
fn group_of(space: &Space, graph: &Graph, members: &[usize]) -> Group {
    if let [parameter] = *members
        && !graph.has_expressions(parameter)
        && space.parameters[parameter].condition().is_none()
    {
        return Group::Free(parameter);
    }
    let in_order = Plan::new(graph, members);
    if let Some(listing) = Listing::of(space, &in_order) {
        return Group::Listed(listing.into());
    }
    let mut small_first = members.to_vec();
    small_first.sort_by_key(|&parameter| space.parameters[parameter].len());
    let small_first = Plan::new(graph, &small_first);
    match Listing::of(space, &small_first) {
        Some(listing) => Group::Listed(listing.reordered(&in_order.order).into()),
        None => Group::Large(small_first),
    }
}

fn level_at(space: &Space, parameter: usize, share: f64) -> u32 {
    let len = usize::try_from(space.parameters[parameter].len()).unwrap_or(usize::MAX);
    u32::try_from(place_at(share, len)).unwrap_or(INACTIVE - 2)
}

/// Sets the parameters of a plan at random. Returns true if the rules allow the result.
fn is_accepted(space: &Space, plan: &Plan, slots: &mut Slots, draws: &mut Draws, fuel: &mut u64) -> bool {
    (0..plan.order.len()).all(|depth| {
        *fuel = fuel.saturating_sub(plan.cost(depth));
        let level = level_at(space, plan.order[depth], draws.share());
        let is_active = plan.is_active(space, slots, depth);
        // An inactive parameter counts as its first level: otherwise configs without it would be drawn more often.
        (is_active || level == 0) && plan.assign(space, slots, depth, if is_active { level } else { INACTIVE }).is_ok()
    })
}

/// The number of configs in a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Exactly this many.
    Exact(u128),
    /// Bounded work could not count them; the space may be empty.
    Unknown,
}

impl Count {
    /// Returns the count minus `few`.
    #[must_use]
    pub fn less(self, few: u128) -> Self {
        match self {
            Self::Exact(count) => Self::Exact(count.saturating_sub(few)),
            Self::Unknown => Self::Unknown,
        }
    }

    /// Returns true if there are certainly at most `limit` configs.
    pub fn fits(self, limit: u128) -> bool {
        matches!(self, Self::Exact(count) if count <= limit)
    }

    /// Returns the count with its unit: `363 configs` or `number of configs unknown`.
    pub fn in_words(self) -> String {
        match self {
            Self::Exact(_) => format!("{self} configs"),
            Self::Unknown => "number of configs unknown".to_owned(),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(count) if *count < 1_000_000_000 => f.write_str(&grouped(&count.to_string())),
            Self::Exact(count) => write!(f, "{:.2e}", *count as f64),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// The most rows of a listing: a round number, as a bound on memory. `bayes` scores as many configs.
const MOST_ROWS: usize = 100_000;

/// All allowed settings of some parameters, as sorted rows of levels.
#[derive(Debug)]
struct Listing {
    /// The parameter of each column.
    order: Vec<usize>,
    rows: Vec<Box<[u32]>>,
}

impl Listing {
    /// Lists the parameters of a plan; `None` if that takes too much work or memory.
    fn of(space: &Space, plan: &Plan) -> Option<Self> {
        let mut search = Backtracking { space, plan, slots: Slots::new(space), fuel: FUEL, rows: Vec::new() };
        search.descend(0)?;
        Some(Self { order: plan.order.clone(), rows: search.rows })
    }

    fn reordered(&self, order: &[usize]) -> Self {
        let column = |parameter: &usize| self.order.iter().position(|known| known == parameter);
        let columns: Vec<usize> = order.iter().filter_map(column).collect();
        let reordered = |row: &[u32]| columns.iter().map(|&column| row[column]).collect();
        let mut rows: Vec<Box<[u32]>> = self.rows.iter().map(|row| reordered(row)).collect();
        rows.sort_unstable();
        Self { order: order.to_vec(), rows }
    }

    /// Returns the rows of a range that have a level in a column. The rows of the range must agree in all earlier columns.
    fn narrowed(&self, within: &Range<usize>, column: usize, level: u32) -> Range<usize> {
        let rows = &self.rows[within.clone()];
        let start = rows.partition_point(|row| row[column] < level);
        let end = rows.partition_point(|row| row[column] <= level);
        within.start + start..within.start + end
    }

    /// Returns the row with a given share of the remaining rows before it in each column. Uniform shares give uniform rows.
    fn at_shares(&self, share: &mut dyn FnMut(usize) -> f64) -> Option<&[u32]> {
        let mut left = 0..self.rows.len();
        for (column, &parameter) in self.order.iter().enumerate() {
            let place = left.start + place_at(share(parameter), left.len());
            left = self.narrowed(&left, column, self.rows.get(place)?[column]);
        }
        self.rows.get(left.start).map(|row| &**row)
    }
}

fn place_at(share: f64, len: usize) -> usize {
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

/// The rows that a partial config leaves of each listed group. Groups that are not listed are ignored.
#[derive(Debug, Default)]
pub(super) struct Ahead {
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
    fn add(&mut self, listing: Arc<Listing>) {
        for (column, &parameter) in listing.order.iter().enumerate() {
            self.columns.resize(self.columns.len().max(parameter + 1), None);
            self.columns[parameter] = Some((self.groups.len(), column));
        }
        let all = 0..listing.rows.len();
        self.groups.push(Left { listing, rows: vec![all] });
    }

    /// Sets the level of a parameter, in the order of the walk. Returns false if no config follows.
    pub(super) fn enter(&mut self, parameter: usize, level: u32) -> bool {
        let Some((group, column)) = self.columns.get(parameter).copied().flatten() else { return true };
        let Left { listing, rows } = &mut self.groups[group];
        rows.truncate(column + 1);
        let left = listing.narrowed(&rows[column], column, level);
        let leads = !left.is_empty();
        rows.push(left);
        leads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::space::{Config, Expression, Parameter, Walk};

    #[test]
    fn rules_that_leave_very_little_are_counted() {
        let parallel = || {
            [
                Parameter::powers_of_two("batch_size", 1, 1024),
                Parameter::powers_of_two("micro", 1, 1024),
                Parameter::powers_of_two("dp", 1, 64),
                Parameter::values("tp", [1, 2, 4, 8]),
                Parameter::values("pp", [1, 2, 4, 8]),
                Parameter::range("workers", 0, 16, 1),
                Parameter::range("prefetch", 1, 8, 1),
                Parameter::range("zero", 0, 3, 1),
            ]
        };
        let space = Space::built(parallel(), &[], &["dp * tp * pp == 64", "batch_size == 1024 and zero == 3"]).unwrap();
        // There are sixteen pairs of tp and pp, each with exactly one dp.
        assert_eq!(space.count(), Count::Exact(16 * 11 * 17 * 8));
        assert_eq!(space.settings(&space.first().unwrap()).integer("batch_size"), Some(1024));
        let rules = ["batch_size == micro * dp", "batch_size % (tp * pp) == 0"];
        let space = Space::built(parallel(), &[], &rules).unwrap();
        assert_eq!(space.count(), Count::Exact(Walk::new(&space).count() as u128));
    }

    #[test]
    fn a_group_too_large_to_list_is_drawn_from_evenly() {
        let wide = |name: &str| Parameter::range(name, 1, 30_000, 1);
        let space = Space::built([wide("a"), wide("b")], &[], &["a % 3 == 0 or b % 2 == 0"]).unwrap();
        assert_eq!((space.count(), space.is_empty()), (Count::Unknown, false));
        let drawn = space.draws(1, 3000);
        assert!(drawn.len() == 3000 && drawn.iter().all(|config| space.allows(config)));
        // A third of all configs, and so half of the allowed two thirds, have such an `a`; the standard deviation is 27.
        let is_third = |config: &&Config| space.settings(config).integer("a").unwrap() % 3 == 0;
        let thirds = drawn.iter().filter(is_third).count();
        assert!((1392..=1608).contains(&thirds), "{thirds}");
    }

    #[test]
    fn a_condition_does_not_change_the_share_of_the_other_parameters() {
        let wide = Parameter::range("b", 1, 9, 1).when(Expression::parse("a > 1").unwrap());
        let more = Parameter::range("c", 1, 100_000, 1);
        let space = Space::built([Parameter::range("a", 1, 2, 1), wide, more], &[], &["a + c > 0"]).unwrap();
        assert_eq!(space.count(), Count::Unknown);
        // One of ten configs has an inactive `b`; the standard deviation is 9.5.
        let drawn = space.draws(1, 1000);
        let inactive = drawn.iter().filter(|config| config.level(1).is_none()).count();
        assert!(drawn.len() == 1000 && (62..=138).contains(&inactive), "{inactive} of {}", drawn.len());
    }

    #[test]
    fn an_unproved_space_is_not_called_empty() {
        let digits = (0..12).map(|at| Parameter::range(format!("d{at}"), 0, 9, 1));
        let sum = (0..12).map(|at| format!("d{at}")).collect::<Vec<_>>().join(" + ");
        let space = Space::built(digits, &[], &[&format!("{sum} >= 109")]).unwrap();
        assert_eq!((space.count(), space.is_empty(), space.first()), (Count::Unknown, false, None));
    }

    #[test]
    fn a_parameter_that_is_never_active_leaves_the_others() {
        let condition = "not (abs(0) != abs(1))";
        let never = || Parameter::range("c", 0, 2, 1).when(Expression::parse(condition).unwrap());
        let space = Space::built([Parameter::range("a", 0, 3, 1), never()], &[], &["a > 1"]).unwrap();
        assert_eq!((space.count(), space.is_empty()), (Count::Exact(2), false));
        assert_eq!(Walk::new(&space).count(), 2);
    }

    #[test]
    fn a_rule_without_parameters_can_refuse_everything() {
        let space = Space::built([Parameter::range("a", 0, 3, 1)], &[], &["1 > 2"]).unwrap();
        assert_eq!((space.count(), space.is_empty(), space.first()), (Count::Exact(0), true, None));
    }
}
