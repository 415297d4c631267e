//! Follows the rules of a space while its parameters get values one after the other.

use std::collections::BTreeSet;

use super::bounds::Bounds;
use super::compile::{self, Constraint, Meaning};
use super::term::{Id, Term, Terms};
use crate::model::space::{INACTIVE, Space};

/// The remainder of each constraint once some parameters have values.
pub(super) type State = Box<[Id]>;

/// The error for a reached bound on work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spent;

/// The number of remaining steps.
#[derive(Debug)]
pub(super) struct Fuel(pub(super) u64);

impl Fuel {
    pub(super) fn burn(&mut self, steps: usize) -> Result<(), Spent> {
        self.0 = self.0.checked_sub(steps as u64).ok_or(Spent)?;
        Ok(())
    }
}

/// A run of levels that leave the same constraints. An inactive parameter has the single level [`INACTIVE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Branch {
    pub(super) first: u32,
    pub(super) len: u64,
    pub(super) state: State,
}

/// The truth of a constraint while a parameter is within some levels.
enum Verdict {
    Holds,
    Fails,
    Open,
}

/// Parameters that rules connect, with each condition after the parameters it uses.
#[derive(Debug, Clone)]
pub(super) struct Course {
    pub(super) order: Vec<usize>,
    constraints: Vec<Constraint>,
    places: Vec<Place>,
    /// For each constraint, the place of its last conditional parameter. Until that parameter is decided, even a false
    /// constraint may turn out not to apply.
    settled: Vec<Option<usize>>,
}

#[derive(Debug, Clone)]
struct Place {
    slot: u32,
    len: u64,
    /// The constraints that use the parameter.
    touching: Vec<usize>,
    condition: Option<usize>,
}

impl Course {
    /// Makes the course of some parameters, with the constraints that use only these parameters.
    pub(super) fn new(space: &Space, constraints: &[Constraint], order: &[usize]) -> Self {
        let among = |constraint: &&Constraint| {
            let condition = if let Meaning::Condition(at) = constraint.meaning { Some(at) } else { None };
            constraint.names.iter().copied().chain(condition).all(|name| order.contains(&name))
                && (condition.is_some() || !constraint.names.is_empty())
        };
        let constraints: Vec<Constraint> = constraints.iter().filter(among).cloned().collect();
        let place = |&parameter: &usize| Place {
            slot: u32::try_from(parameter).unwrap_or(u32::MAX),
            len: space.parameters[parameter].len(),
            touching: (0..constraints.len()).filter(|&at| constraints[at].names.contains(&parameter)).collect(),
            condition: constraints.iter().position(|one| one.meaning == Meaning::Condition(parameter)),
        };
        let is_conditional = |&at: &usize| space.parameters[order[at]].condition().is_some();
        let last_conditional = |names: &BTreeSet<usize>| {
            (0..order.len()).filter(|&at| names.contains(&order[at])).filter(is_conditional).max()
        };
        Self {
            places: order.iter().map(place).collect(),
            settled: constraints.iter().map(|constraint| last_conditional(&constraint.names)).collect(),
            order: order.to_vec(),
            constraints,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns true if no constraint uses any of the parameters.
    pub(super) fn is_free(&self) -> bool {
        self.constraints.is_empty()
    }

    /// Returns the state before any parameter has a value; `None` if no config can meet it.
    pub(super) fn start(&self, terms: &mut Terms) -> Option<State> {
        let mut state = Vec::with_capacity(self.constraints.len());
        for at in 0..self.constraints.len() {
            state.push(self.left(terms, at, self.constraints[at].root, None)?);
        }
        Some(state.into())
    }

    /// Returns the remainder of a constraint in its shortest form; `None` if no config is left.
    fn left(&self, terms: &mut Terms, constraint: usize, id: Id, depth: Option<usize>) -> Option<Id> {
        if !terms.bounds(id).is_never_true() {
            return Some(id);
        }
        if self.constraints[constraint].meaning == Meaning::Demand && self.is_settled(constraint, depth) {
            return None;
        }
        Some(terms.truth(false))
    }

    /// Returns true if a constraint certainly applies.
    fn is_settled(&self, constraint: usize, depth: Option<usize>) -> bool {
        self.settled[constraint].is_none_or(|last| depth.is_some_and(|depth| depth >= last))
    }

    fn is_active(&self, terms: &Terms, state: &[Id], depth: usize) -> bool {
        let condition = self.places[depth].condition;
        condition.is_none_or(|at| matches!(terms.term(state[at]), Term::Bool(true)))
    }

    /// Returns the state once a parameter has a value; `None` if no config has that value.
    pub(super) fn enter(
        &self,
        space: &Space,
        terms: &mut Terms,
        state: &[Id],
        depth: usize,
        level: u32,
    ) -> Option<State> {
        let place = &self.places[depth];
        let mut next = State::from(state);
        let value = (level != INACTIVE).then(|| terms.constant(&space.parameters[self.order[depth]].value(level)));
        for &at in &place.touching {
            let id = match value {
                Some(value) => terms.put(state[at], place.slot, value),
                // The parameter is inactive: a rule that uses it does not apply, and a condition that uses it does not
                // hold.
                None => terms.truth(self.constraints[at].meaning == Meaning::Demand),
            };
            next[at] = self.left(terms, at, id, Some(depth))?;
        }
        if let Some(condition) = place.condition {
            next[condition] = terms.truth(true);
        }
        Some(next)
    }

    /// Returns all states that can follow, in the order of the levels.
    pub(super) fn branches(
        &self,
        space: &Space,
        terms: &mut Terms,
        state: &[Id],
        depth: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<Branch>, Spent> {
        /// Up to this many levels are tried one by one; splitting so few would save nothing.
        const FEW: u64 = 3;
        let place = &self.places[depth];
        let mut found: Vec<Branch> = Vec::new();
        if !self.is_active(terms, state, depth) {
            fuel.burn(1)?;
            let next = self.enter(space, terms, state, depth, INACTIVE);
            found.extend(next.map(|state| Branch { first: INACTIVE, len: 1, state }));
            return Ok(found);
        }
        let mut open = vec![(0, place.len)];
        while let Some((first, end)) = open.pop() {
            fuel.burn(1 + place.touching.len())?;
            match self.within(space, terms, state, depth, (first, end)) {
                Some(None) => {}
                Some(Some(state)) => push(&mut found, Branch { first: level(first), len: end - first, state }),
                None if end - first <= FEW => {
                    for at in first..end {
                        fuel.burn(1 + place.touching.len())?;
                        if let Some(state) = self.enter(space, terms, state, depth, level(at)) {
                            push(&mut found, Branch { first: level(at), len: 1, state });
                        }
                    }
                }
                None => {
                    let middle = first.midpoint(end);
                    open.extend([(middle, end), (first, middle)]);
                }
            }
        }
        Ok(found)
    }

    /// Returns the common result of all levels of a run, if they agree: no config at all, or one state.
    pub(super) fn within(
        &self,
        space: &Space,
        terms: &mut Terms,
        state: &[Id],
        depth: usize,
        (first, end): (u64, u64),
    ) -> Option<Option<State>> {
        let place = &self.places[depth];
        let is_mentioned = |terms: &Terms, at: &usize| terms.mentions(state[*at], place.slot);
        let touching: Vec<usize> = place.touching.iter().copied().filter(|at| is_mentioned(terms, at)).collect();
        let mut next = State::from(state);
        let mut is_decided = true;
        if !touching.is_empty() {
            let bounds = compile::bounds_of(terms, &space.parameters[self.order[depth]], first, end);
            for at in touching {
                match self.verdict(terms, state[at], &[(place.slot, bounds)]) {
                    Verdict::Holds => next[at] = terms.truth(true),
                    Verdict::Fails => match terms.truth(false) {
                        _ if self.constraints[at].meaning == Meaning::Demand && self.is_settled(at, Some(depth)) => {
                            return Some(None);
                        }
                        never => next[at] = never,
                    },
                    Verdict::Open => is_decided = false,
                }
            }
        }
        if !is_decided {
            return None;
        }
        // From here on, a constraint that is known to be false may be certain to apply.
        let never = terms.truth(false);
        let demands = place.touching.iter().filter(|at| self.constraints[**at].meaning == Meaning::Demand);
        if demands.into_iter().any(|&at| next[at] == never && self.is_settled(at, Some(depth))) {
            return Some(None);
        }
        if let Some(condition) = place.condition {
            next[condition] = terms.truth(true);
        }
        Some(Some(next))
    }

    fn verdict(&self, terms: &Terms, id: Id, within: &[(u32, Bounds)]) -> Verdict {
        let bounds = terms.bounds_within(id, within);
        match (bounds.is_surely_true(), bounds.is_never_true()) {
            (true, _) => Verdict::Holds,
            (_, true) => Verdict::Fails,
            _ => Verdict::Open,
        }
    }

    pub(super) fn is_open_to_choice(&self, terms: &Terms, state: &[Id], depth: usize) -> bool {
        self.is_active(terms, state, depth)
    }

    pub(super) fn levels(&self, depth: usize) -> u64 {
        self.places[depth].len
    }

    /// Finds the next place whose parameter shares a constraint with this place.
    pub(super) fn partner(&self, terms: &Terms, state: &[Id], depth: usize) -> Option<usize> {
        let place = &self.places[depth];
        let shared: Vec<usize> = place.touching.iter().copied().filter(|at| !terms.is_constant(state[*at])).collect();
        (depth + 1..self.len()).find(|&next| shared.iter().any(|&at| terms.mentions(state[at], self.places[next].slot)))
    }

    /// Estimates how many levels of a later parameter remain while this parameter is within some levels; never too few.
    pub(super) fn room(
        &self,
        space: &Space,
        terms: &mut Terms,
        state: &[Id],
        (depth, (first, end)): (usize, (u64, u64)),
        partner: usize,
    ) -> f64 {
        let here = &self.places[depth];
        let there = &self.places[partner];
        let mentions = |at: &usize| terms.mentions(state[*at], here.slot);
        let shared: Vec<usize> = there
            .touching
            .iter()
            .copied()
            .filter(|at| mentions(at) && self.constraints[*at].meaning == Meaning::Demand)
            .collect();
        let bounds = compile::bounds_of(terms, &space.parameters[self.order[depth]], first, end);
        let mut is_dead = |first: u64, end: u64| {
            let inside = compile::bounds_of(terms, &space.parameters[self.order[partner]], first, end);
            let within = [(here.slot, bounds), (there.slot, inside)];
            shared.iter().any(|&at| matches!(self.verdict(terms, state[at], &within), Verdict::Fails))
        };
        // Cut off the longest beginning and the longest end in which no level is possible.
        let (mut from, mut beyond) = (0, there.len);
        while from < beyond {
            let middle = (from + beyond).div_ceil(2);
            if is_dead(0, middle) { from = middle } else { beyond = middle - 1 }
        }
        let (mut until, mut before) = (there.len, from);
        while before < until {
            let middle = before.midpoint(until);
            if is_dead(middle, there.len) { until = middle } else { before = middle + 1 }
        }
        let room = until.saturating_sub(from);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let room = room as f64;
        room.max(0.5)
    }
}

pub(super) fn level(level: u64) -> u32 {
    u32::try_from(level).unwrap_or(INACTIVE - 1)
}

/// Adds a branch, or extends the previous branch if the state is the same.
fn push(found: &mut Vec<Branch>, next: Branch) {
    match found.last_mut() {
        Some(last) if last.state == next.state && u64::from(last.first) + last.len == u64::from(next.first) => {
            last.len += next.len;
        }
        _ => found.push(next),
    }
}
