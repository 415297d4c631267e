//! Keeps the knowledge about a whole space. For each group of parameters that rules connect, it has all configs or an
//! estimate of their number. For a walk, it predicts if a partial config leads to any config.

use std::collections::HashMap;

use super::compile::{self, Constraint, Meaning};
use super::course::{Course, Fuel, State};
use super::diagram::{Diagram, NodeId};
use super::sample::{Draws, Estimate, Sampler};
use super::term::Terms;
use crate::model::space::{INACTIVE, Space, build::Graph, plan::Plan};

/// Steps after which a group counts as too large to list, in each of two orders. A round number: a step takes about a
/// third of a microsecond, so this bounds listing to about 0.13 s per order.
const LISTING: u64 = 400_000;

/// Steps that one call for draws may take: the same bound on time as [`LISTING`].
const DRAWING: u64 = 400_000;

/// The largest number of terms kept while a space is explored: a round number, as a bound on memory.
const MOST_TERMS: usize = 3_000_000;

/// The knowledge about a group of parameters that no rule connects with another group.
#[derive(Debug)]
enum Group {
    /// One parameter that no rule uses.
    Free(usize),
    /// A group whose configs are all listed.
    Listed { course: Course, diagram: Diagram, root: NodeId, is_in_order: bool },
    /// A group without any config.
    Empty,
    /// A group with too many configs to list.
    Large { course: Course, estimate: Option<Estimate> },
}

/// The knowledge about a whole space.
#[derive(Debug)]
pub(in crate::model::space) struct Outlook {
    terms: Terms,
    constraints: Vec<Constraint>,
    groups: Vec<Group>,
}

/// The number of configs in a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::model::space) enum Amount {
    Exactly(u128),
    /// About this many, with the standard error as a share.
    About(f64, f64),
    Unknown,
}

impl Outlook {
    pub(in crate::model::space) fn of(space: &Space) -> Self {
        let (mut terms, constraints) = compile::compile(space);
        // A condition that is never true still leaves configs, without its parameter.
        let never = |constraint: &Constraint| {
            let is_rule = !matches!(constraint.meaning, Meaning::Condition(_));
            is_rule && constraint.names.is_empty() && terms.bounds(constraint.root).is_never_true()
        };
        let is_impossible = constraints.iter().any(never);
        let graph = Graph::of(space);
        let mut groups: Vec<Group> = Vec::new();
        for group in graph.groups() {
            groups.push(match group.as_slice() {
                [parameter]
                    if !graph.has_expressions(*parameter) && space.parameters[*parameter].condition().is_none() =>
                {
                    Group::Free(*parameter)
                }
                _ => group_of(space, &constraints, &terms, &graph, &group),
            });
        }
        if is_impossible {
            groups.push(Group::Empty);
        }
        terms.truth(true);
        Self { terms, constraints, groups }
    }

    /// Returns true if the space is proved to be empty.
    pub(in crate::model::space) fn is_empty(&self) -> bool {
        self.groups.iter().any(|group| matches!(group, Group::Empty))
    }

    /// Returns the number of configs in each group.
    pub(in crate::model::space) fn amounts(&self, space: &Space) -> Vec<Amount> {
        let amount = |group: &Group| match group {
            Group::Free(parameter) => Amount::Exactly(space.parameters[*parameter].len().into()),
            Group::Listed { diagram, root, .. } => Amount::Exactly(diagram.count(*root)),
            Group::Empty => Amount::Exactly(0),
            Group::Large { estimate, .. } => {
                estimate.map_or(Amount::Unknown, |estimate| Amount::About(estimate.count, estimate.error))
            }
        };
        self.groups.iter().map(amount).collect()
    }

    /// Returns true if shares of zero give the levels of the first config.
    pub(in crate::model::space) fn is_in_order(&self) -> bool {
        self.groups.iter().all(|group| match group {
            Group::Free(_) => true,
            Group::Listed { is_in_order, .. } => *is_in_order,
            Group::Empty | Group::Large { .. } => false,
        })
    }

    /// Returns the levels of the config that has a given share of the allowed configs before it in each parameter, if all
    /// configs are listed.
    pub(in crate::model::space) fn at_shares(
        &self,
        space: &Space,
        share: &mut dyn FnMut(usize) -> f64,
    ) -> Option<Vec<u32>> {
        self.put_together(space, share, &mut || None)
    }

    /// Draws the levels of random configs: uniformly if all configs are listed, else nearly uniformly. Returns fewer configs
    /// if the bound on work is reached.
    pub(in crate::model::space) fn draws(&self, space: &Space, seed: u64, most: usize) -> Vec<Vec<u32>> {
        let (mut draws, mut others) = (Draws::new(seed), Draws::new(seed ^ 0xA5A5_A5A5));
        let mut samplers: Vec<Sampler<'_>> = Vec::new();
        let mut fuel = Fuel(DRAWING);
        for group in &self.groups {
            if let Group::Large { course, .. } = group {
                samplers.push(Sampler::new(space, course, self.terms.clone()));
            }
        }
        let one = |_| {
            let mut samplers = samplers.iter_mut();
            let mut large = || samplers.next()?.one(&mut others, &mut fuel);
            self.put_together(space, &mut |_| draws.share(), &mut large)
        };
        (0..most).map_while(one).collect()
    }

    /// Returns true if a rule uses a parameter, so that other parameters may have to change with it.
    pub(in crate::model::space) fn is_tied(&self, parameter: usize) -> bool {
        self.constraints.iter().any(|constraint| constraint.names.contains(&parameter))
    }

    fn put_together(
        &self,
        space: &Space,
        share: &mut dyn FnMut(usize) -> f64,
        large: &mut dyn FnMut() -> Option<Vec<u32>>,
    ) -> Option<Vec<u32>> {
        let mut levels = vec![INACTIVE; space.parameters.len()];
        for group in &self.groups {
            let (order, found) = match group {
                Group::Empty => return None,
                Group::Free(parameter) => {
                    let len = space.parameters[*parameter].len();
                    #[expect(clippy::cast_precision_loss, reason = "levels fit 32 bits")]
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the length")]
                    let level = ((share(*parameter).clamp(0.0, 1.0) * len as f64) as u64).min(len - 1);
                    levels[*parameter] = u32::try_from(level).ok()?;
                    continue;
                }
                Group::Listed { course, diagram, root, .. } => {
                    (&course.order, diagram.at_shares(*root, &course.order, share))
                }
                Group::Large { course, .. } => (&course.order, large()?),
            };
            for (parameter, level) in order.iter().zip(found) {
                levels[*parameter] = level;
            }
        }
        Some(levels)
    }

    /// Splits the parameters of a walk into their groups, each in the walk's order.
    pub(in crate::model::space) fn tracks(&self, space: &Space, order: &[usize]) -> Tracks {
        let mut tracks = Tracks {
            terms: self.terms.clone(),
            tracks: Vec::new(),
            place: vec![None; space.parameters.len()],
            allowance: ALLOWANCE,
        };
        let graph = Graph::of(space);
        for group in graph.groups() {
            let members: Vec<usize> = order.iter().copied().filter(|at| group.contains(at)).collect();
            if members.len() != group.len() {
                continue;
            }
            let course = Course::new(space, &self.constraints, &members);
            if course.is_free() {
                continue;
            }
            for (depth, member) in members.iter().enumerate() {
                tracks.place[*member] = Some((tracks.tracks.len(), depth));
            }
            let start = course.start(&mut tracks.terms);
            let known = vec![HashMap::new(); course.len() + 1];
            tracks.tracks.push(Track { states: start.into_iter().collect(), course, known });
        }
        tracks
    }
}

fn group_of(space: &Space, constraints: &[Constraint], terms: &Terms, graph: &Graph, group: &[usize]) -> Group {
    let plan = |wanted: &[usize]| Plan::new(graph, wanted).order;
    let in_order = plan(group);
    let mut small_first = group.to_vec();
    small_first.sort_by_key(|&parameter| space.parameters[parameter].len());
    let small_first = plan(&small_first);
    let mut tried: Vec<&[usize]> = vec![&in_order];
    if small_first != in_order {
        tried.push(&small_first);
    }
    for order in tried {
        let course = Course::new(space, constraints, order);
        let mut terms = terms.clone();
        let mut diagram = Diagram::new(&course);
        let Some(start) = course.start(&mut terms) else { return Group::Empty };
        match diagram.node(space, &course, &mut terms, (0, &start), &mut Fuel(LISTING)) {
            Ok(None) => return Group::Empty,
            Ok(Some(root)) => {
                diagram.finish();
                return Group::Listed { is_in_order: course.order == in_order, course, diagram, root };
            }
            Err(_) => {}
        }
    }
    // The better order for an estimate is not known in advance, so two orders are tried: parameters of equal length in
    // forward or in reverse order.
    let mut others = group.to_vec();
    others.reverse();
    others.sort_by_key(|&parameter| space.parameters[parameter].len());
    let orders = [small_first, plan(&others)];
    let estimates = orders.map(|order| {
        let course = Course::new(space, constraints, &order);
        let estimate = Sampler::new(space, &course, terms.clone()).estimate(&mut Draws::new(0));
        (course, estimate)
    });
    let dead = |estimate: &Option<Estimate>| estimate.map_or(f64::INFINITY, |estimate| estimate.dead);
    let [(course, estimate), (other, its)] = estimates;
    if dead(&its) < dead(&estimate) {
        return Group::Large { course: other, estimate: its };
    }
    Group::Large { course, estimate }
}

/// Steps that a walk may look ahead from one config to the next, and from one level. Both are round numbers: at a third of a
/// microsecond per step, at most about 17 ms from one config to the next.
const ALLOWANCE: u64 = 50_000;
const LOOK: u64 = 5_000;

/// The position of a walk in each group of parameters, with a look-ahead for dead ends.
#[derive(Debug)]
pub(in crate::model::space) struct Tracks {
    terms: Terms,
    tracks: Vec<Track>,
    /// The track of each parameter and the parameter's place in it.
    place: Vec<Option<(usize, usize)>>,
    allowance: u64,
}

#[derive(Debug)]
struct Track {
    course: Course,
    /// The state before each place that the walk has reached; empty if the group has no config.
    states: Vec<State>,
    /// True for a state that leads to a config, or is assumed to.
    known: Vec<HashMap<State, bool>>,
}

impl Tracks {
    /// Sets a parameter's level. Returns true if it leads to a config, as far as bounded work shows.
    pub(in crate::model::space) fn enter(&mut self, space: &Space, parameter: usize, level: u32) -> bool {
        let Some((track, depth)) = self.place[parameter] else { return true };
        if self.terms.len() > MOST_TERMS {
            // The bound on memory is reached: forget the lookups, and let the walk continue without looking ahead.
            self.place.fill(None);
            return true;
        }
        let track = &mut self.tracks[track];
        track.states.truncate(depth + 1);
        let Some(state) = track.states.get(depth) else { return false };
        let Some(next) = track.course.enter(space, &mut self.terms, state, depth, level) else { return false };
        let mut fuel = Fuel(self.allowance.min(LOOK));
        let given = fuel.0;
        let leads = track.leads(space, &mut self.terms, depth + 1, &next, &mut fuel);
        self.allowance -= given - fuel.0;
        track.states.push(next);
        leads
    }

    /// Renews the allowance of steps once a config is found.
    pub(in crate::model::space) fn refill(&mut self) {
        self.allowance = ALLOWANCE;
    }
}

impl Track {
    fn leads(&mut self, space: &Space, terms: &mut Terms, depth: usize, state: &State, fuel: &mut Fuel) -> bool {
        if depth == self.course.len() {
            return true;
        }
        if let Some(&known) = self.known[depth].get(state) {
            return known;
        }
        let leads = match self.course.branches(space, terms, state, depth, fuel) {
            // Assumed to lead to a config until the opposite is proved.
            Err(_) => true,
            Ok(branches) => branches.iter().any(|branch| self.leads(space, terms, depth + 1, &branch.state, fuel)),
        };
        if !leads || fuel.0 > 0 {
            self.known[depth].insert(state.clone(), leads);
        }
        leads
    }
}
