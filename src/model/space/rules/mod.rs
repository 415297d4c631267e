//! Finds the configs that the rules of a space allow: lists, counts and draws them with bounded work.
//!
//! Parameters that no condition, derived value or rule connects are independent, so each group of connected parameters is
//! handled alone. Bounded backtracking lists a group. A group that is too large to list is not counted, and its configs are
//! drawn by rejection: random settings, until the rules allow them.

mod listing;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::space::build::Graph;
use crate::model::space::permutation::{GAMMA, mix, share};
use crate::model::space::plan::{Plan, Slots};
use crate::model::space::{Count, INACTIVE, Space};
pub(super) use listing::Ahead;
use listing::{Listing, place_at};

/// The bound on the work of one call for draws; see [`Plan::cost`]. A round number: about a tenth of a second.
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

/// The groups of a space.
#[derive(Debug)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// The parameters that a rule or a condition uses.
    tied: BTreeSet<usize>,
    is_empty: bool,
    /// Listings in the orders of earlier walks.
    reordered: Mutex<Vec<Arc<Listing>>>,
}

impl Groups {
    pub(super) fn of(space: &Space) -> Self {
        let graph = &space.graph;
        let groups: Vec<Group> = graph.groups().iter().map(|members| group_of(space, graph, members)).collect();
        let is_none = |group: &Group| matches!(group, Group::Listed(listing) if listing.len() == 0);
        // A rule without names is part of each listed group.
        let are_free = groups.iter().all(|group| matches!(group, Group::Free(_)));
        let is_refused = || Plan::new(graph, &[0]).assign(space, &mut Slots::new(space), 0, 0).is_err();
        let rules = (0..graph.rules()).flat_map(|rule| graph.needs_of_rule(rule));
        let conditions = (0..space.parameters.len()).flat_map(|parameter| graph.needs_of_condition(parameter));
        Self {
            is_empty: groups.iter().any(is_none) || are_free && is_refused(),
            tied: rules.chain(conditions).copied().collect(),
            groups,
            reordered: Mutex::default(),
        }
    }

    /// Returns true if the space is proved to be empty.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
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
            Group::Listed(listing) => Some(listing.len() as u128),
            Group::Large(_) => None,
        };
        let product = |all: u128, group: &Group| all.checked_mul(size(group)?);
        match self.groups.iter().try_fold(1, product) {
            _ if self.is_empty => Count::Exact(0),
            Some(count) => Count::Exact(count),
            None => Count::Unknown,
        }
    }

    /// Returns the levels of the config that has a given share of the allowed configs before it in each parameter. `None` if
    /// a group is not listed.
    pub(super) fn at_shares(&self, space: &Space, share: &mut dyn FnMut(usize) -> f64) -> Option<Vec<u32>> {
        self.put_together(space, share, &mut |_| None)
    }

    /// Draws the levels of random configs, all with the same probability. Returns fewer configs once the bound on work is
    /// reached.
    pub(super) fn draws(&self, space: &Space, seed: u64, most: usize) -> Vec<Vec<u32>> {
        let (mut draws, mut others) = (Draws::new(seed), Draws::new(seed ^ 0xA5A5_A5A5));
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

/// A stream of pseudorandom numbers that a seed determines.
struct Draws(u64);

impl Draws {
    fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5851_F42D_4C95_7F2D))
    }

    /// Returns a number from 0 to below 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GAMMA);
        share(mix(self.0))
    }
}
