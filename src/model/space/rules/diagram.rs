//! Lists all configs of some parameters as a decision diagram, which gives their number and the config at a place.

use std::collections::HashMap;

use super::course::{Branch, Course, Fuel, Spent, State};
use super::term::Terms;
use crate::model::space::Space;

/// The number of a node.
pub(super) type NodeId = u32;

/// The node after the last parameter.
const END: NodeId = 0;

#[derive(Debug)]
struct Node {
    /// Runs of levels: the first level, the number of levels, and the node that follows.
    edges: Box<[(u32, u64, NodeId)]>,
    /// The number of configs that follow.
    count: u128,
}

/// The nodes of all visited states.
#[derive(Debug)]
pub(super) struct Diagram {
    nodes: Vec<Node>,
    /// The node of each state at each place; `None` if no config follows.
    known: Vec<HashMap<State, Option<NodeId>>>,
}

impl Diagram {
    pub(super) fn new(course: &Course) -> Self {
        let end = Node { edges: Box::default(), count: 1 };
        Self { nodes: vec![end], known: (0..course.len()).map(|_| HashMap::new()).collect() }
    }

    /// Returns the node of the configs from a place on; `None` if there are no configs.
    pub(super) fn node(
        &mut self,
        space: &Space,
        course: &Course,
        terms: &mut Terms,
        (depth, state): (usize, &State),
        fuel: &mut Fuel,
    ) -> Result<Option<NodeId>, Spent> {
        if depth == course.len() {
            return Ok(Some(END));
        }
        if let Some(&known) = self.known[depth].get(state) {
            return Ok(known);
        }
        let mut edges: Vec<(u32, u64, NodeId)> = Vec::new();
        let mut count = 0_u128;
        for Branch { first, len, state } in course.branches(space, terms, state, depth, fuel)? {
            if let Some(next) = self.node(space, course, terms, (depth + 1, &state), fuel)? {
                edges.push((first, len, next));
                let here = self.nodes[next as usize].count.checked_mul(len.into());
                count = here.and_then(|here| count.checked_add(here)).ok_or(Spent)?;
            }
        }
        let node = (count > 0).then(|| {
            self.nodes.push(Node { edges: edges.into(), count });
            u32::try_from(self.nodes.len() - 1).unwrap_or(NodeId::MAX)
        });
        self.known[depth].insert(state.clone(), node);
        Ok(node)
    }

    /// Drops the index from states to nodes; call it once all nodes are known.
    pub(super) fn finish(&mut self) {
        self.known = Vec::new();
    }

    pub(super) fn count(&self, node: NodeId) -> u128 {
        self.nodes[node as usize].count
    }

    /// Returns the levels of the config at a given share of each parameter's part; uniform shares give uniform configs.
    pub(super) fn at_shares(&self, node: NodeId, order: &[usize], share: &mut dyn FnMut(usize) -> f64) -> Vec<u32> {
        let mut levels = Vec::with_capacity(order.len());
        let mut node = &self.nodes[node as usize];
        for &parameter in order {
            let mut left = share(parameter).clamp(0.0, 1.0) * as_f64(node.count);
            let mut edges = node.edges.iter().peekable();
            while let Some(&(first, len, next)) = edges.next() {
                let each = as_f64(self.nodes[next as usize].count);
                let all = each * as_f64(len.into());
                if left < all || edges.peek().is_none() {
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the length")]
                    let offset = ((left / each) as u64).min(len - 1);
                    levels.push(first.saturating_add(u32::try_from(offset).unwrap_or(0)));
                    node = &self.nodes[next as usize];
                    break;
                }
                left -= all;
            }
        }
        levels
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share of it is asked for")]
fn as_f64(count: u128) -> f64 {
    count as f64
}
