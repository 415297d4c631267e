//! How many configs a space has: exact where that is quick, else an estimate that says so.
//!
//! Parameters that no condition, derived value or rule connects are independent, so the count is a product over the
//! connected groups; each group is walked, or sampled when it is too large to walk.

use std::fmt;

use super::build::Graph;
use super::plan::{Plan, Slots};
use super::{Advance, INACTIVE, Permutation, Space, Walk};

/// How many configs a space has.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Count {
    /// Exactly this many.
    Exact(u128),
    /// About this many; counting would take too long.
    About(f64),
}

impl Count {
    /// Whether there are at most so many for certain.
    pub fn fits(self, limit: u128) -> bool {
        matches!(self, Self::Exact(count) if count <= limit)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(count) if *count < 1_000_000_000 => write!(f, "{}", grouped(*count)),
            #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
            Self::Exact(count) => write!(f, "{:.2e}", *count as f64),
            Self::About(count) => write!(f, "about {count:.2e}"),
        }
    }
}

fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Settings tried while a group is walked, and samples drawn from one that is too large.
const WALK_FUEL: u64 = 150_000;
const SAMPLES: u64 = 20_000;

pub(super) fn count(space: &Space) -> Count {
    let graph = Graph::of(space);
    let groups = if space.only.is_some() { vec![(0..space.parameters.len()).collect()] } else { graph.groups() };
    groups.iter().map(|group| count_group(space, &graph, group)).fold(Count::Exact(1), times)
}

fn times(a: Count, b: Count) -> Count {
    match (a, b) {
        (Count::Exact(a), Count::Exact(b)) => {
            a.checked_mul(b).map_or_else(|| Count::About(to_f64(a) * to_f64(b)), Count::Exact)
        }
        (Count::Exact(0), _) | (_, Count::Exact(0)) => Count::Exact(0),
        (Count::About(about), Count::Exact(exact)) | (Count::Exact(exact), Count::About(about)) => {
            Count::About(about * to_f64(exact))
        }
        (Count::About(a), Count::About(b)) => Count::About(a * b),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn to_f64(count: u128) -> f64 {
    count as f64
}

fn count_group(space: &Space, graph: &Graph, group: &[usize]) -> Count {
    if let [parameter] = group
        && space.only.is_none()
        && !graph.has_expressions(*parameter)
    {
        return Count::Exact(space.parameters[*parameter].len().into());
    }
    let mut walk = Walk::over(space, group);
    let mut fuel = WALK_FUEL;
    let mut found = 0_u128;
    loop {
        match walk.advance(&mut fuel) {
            Advance::Found(_) => found += 1,
            Advance::End => return Count::Exact(found),
            Advance::OutOfFuel => return Count::About(estimate(space, graph, group).max(to_f64(found))),
        }
    }
}

/// The share of random levels that the rules allow, times the size of the group's product.
fn estimate(space: &Space, graph: &Graph, group: &[usize]) -> f64 {
    let plan = Plan::new(graph, group);
    let size: f64 = group.iter().map(|&parameter| to_f64(space.parameters[parameter].len().into())).product();
    let mut allowed = 0_u64;
    for sample in 0..SAMPLES {
        let mut levels = vec![0; space.parameters.len()];
        for &parameter in group {
            let count = u128::from(space.parameters[parameter].len());
            let draw = Permutation::new(1 << 64, sample).at((parameter as u128) << 32).unwrap_or(0);
            levels[parameter] = u32::try_from(draw % count).unwrap_or(0);
        }
        let mut slots = Slots::new(space);
        let fits = plan.run(space, &mut slots, &levels).is_none();
        let canonical = group.iter().all(|&at| slots.levels[at] != INACTIVE || levels[at] == 0);
        let member = space.only.is_none() || space.is_member(&slots.into_config());
        allowed += u64::from(fits && canonical && member);
    }
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let share = allowed as f64 / SAMPLES as f64;
    share * size
}
