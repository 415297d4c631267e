//! What is known of a space as a whole: for each group of parameters that rules connect all of its configs, or how many
//! there are about; and for a walk, whether a beginning leads anywhere.

use std::collections::HashMap;

use super::compile::{self, Constraint};
use super::course::{Course, Fuel, State};
use super::diagram::{Diagram, NodeId};
use super::sample::{Draws, Estimate, Sampler};
use super::term::Terms;
use crate::model::space::{INACTIVE, Space, build::Graph, plan::Plan};

/// Steps after which a group is too large to be listed, in each of two orders. A step takes about a third of a microsecond.
const LISTING: u64 = 400_000;

/// Steps that draws at once may take.
const DRAWING: u64 = 400_000;

/// Terms that are kept while a space is looked through, as a bound on memory.
const MOST_TERMS: usize = 3_000_000;

/// What is known of some parameters that no rule connects with others.
#[derive(Debug)]
enum Group {
    /// No rule speaks of it.
    Free(usize),
    /// All configs.
    Listed { course: Course, diagram: Diagram, root: NodeId, is_in_order: bool },
    /// There is none.
    Empty,
    /// Too many to list.
    Large { course: Course, estimate: Option<Estimate> },
}

/// What is known of a space.
#[derive(Debug)]
pub(in crate::model::space) struct Outlook {
    terms: Terms,
    constraints: Vec<Constraint>,
    groups: Vec<Group>,
}

/// How many configs a group has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::model::space) enum Amount {
    Exactly(u128),
    /// About so many, with the standard error as a share.
    About(f64, f64),
    Unknown,
}

impl Outlook {
    pub(in crate::model::space) fn of(space: &Space) -> Self {
        let (mut terms, constraints) = compile::compile(space);
        let never =
            |constraint: &Constraint| constraint.names.is_empty() && terms.bounds(constraint.root).is_never_true();
        let is_impossible = constraints.iter().any(never);
        let graph = Graph::of(space);
        let mut groups: Vec<Group> = Vec::new();
        for group in graph.groups() {
            groups.push(match group.as_slice() {
                [parameter] if !graph.has_expressions(*parameter) => Group::Free(*parameter),
                _ => group_of(space, &constraints, &terms, &graph, &group),
            });
        }
        if is_impossible {
            groups.push(Group::Empty);
        }
        terms.truth(true);
        Self { terms, constraints, groups }
    }

    /// Whether it is shown that there is no config.
    pub(in crate::model::space) fn is_empty(&self) -> bool {
        self.groups.iter().any(|group| matches!(group, Group::Empty))
    }

    /// How many configs each group has.
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

    /// Whether the levels at shares of zero are those of the first config.
    pub(in crate::model::space) fn is_in_order(&self) -> bool {
        self.groups.iter().all(|group| match group {
            Group::Free(_) => true,
            Group::Listed { is_in_order, .. } => *is_in_order,
            Group::Empty | Group::Large { .. } => false,
        })
    }

    /// The levels of a config of the rules' that has a share of them before it in each parameter, as far as all are listed.
    pub(in crate::model::space) fn at_shares(
        &self,
        space: &Space,
        share: &mut dyn FnMut(usize) -> f64,
    ) -> Option<Vec<u32>> {
        self.put_together(space, share, &mut || None)
    }

    /// The levels of random configs: uniform as far as all are listed, nearly so elsewhere. Fewer where work is spent.
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

    /// Whether a rule speaks of a parameter, so that others may have to give way to it.
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

    /// The groups of a walk's parameters, each in the walk's order.
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
    // Which order tells more is not known before: of equally long parameters the first or the last one first.
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

/// Steps that a walk may look ahead from one config to the next, and from one level.
const ALLOWANCE: u64 = 50_000;
const LOOK: u64 = 5_000;

/// Where a walk is in each group of parameters, and whether that leads anywhere.
#[derive(Debug)]
pub(in crate::model::space) struct Tracks {
    terms: Terms,
    tracks: Vec<Track>,
    /// The track of each parameter and its place there.
    place: Vec<Option<(usize, usize)>>,
    allowance: u64,
}

#[derive(Debug)]
struct Track {
    course: Course,
    /// What is left before each place, as far as the walk came; none at all where there is no config.
    states: Vec<State>,
    /// Whether a state leads to a config, or is taken to.
    known: Vec<HashMap<State, bool>>,
}

impl Tracks {
    /// Gives a parameter a level; whether that leads to a config as far as bounded work can tell.
    pub(in crate::model::space) fn enter(&mut self, space: &Space, parameter: usize, level: u32) -> bool {
        let Some((track, depth)) = self.place[parameter] else { return true };
        if self.terms.len() > MOST_TERMS {
            // What was looked up is forgotten; the walk goes on without looking ahead.
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

    /// A config was found: the way to the next may be looked for.
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
            // Taken to lead somewhere until it is shown that it does not.
            Err(_) => true,
            Ok(branches) => branches.iter().any(|branch| self.leads(space, terms, depth + 1, &branch.state, fuel)),
        };
        if !leads || fuel.0 > 0 {
            self.known[depth].insert(state.clone(), leads);
        }
        leads
    }
}
