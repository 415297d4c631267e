//! Counts the configs of a space: exactly if that is quick, else by a marked estimate.
//!
//! Parameters that no condition, derived value or rule connects are independent, so the count is a product over the
//! connected groups. Each group is listed as a diagram, or sampled if it is too large to list.

use std::fmt;

use super::rules::Amount;
use super::{Advance, Space, Walk};

/// The number of configs in a space.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Count {
    /// Exactly this many.
    Exact(u128),
    /// About this many; counting would take too long.
    About {
        /// The estimate.
        count: f64,
        /// Its standard error, as a share of the estimate.
        error: f64,
    },
    /// Bounded work found no answer; the space may be empty.
    Unknown,
}

impl Count {
    /// Returns the count minus `few`.
    #[must_use]
    pub fn less(self, few: u128) -> Self {
        match self {
            Self::Exact(count) => Self::Exact(count.saturating_sub(few)),
            other => other,
        }
    }

    /// Returns true if there are certainly at most `limit` configs.
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
            Self::About { count, error } => write!(f, "~{count:.2e} (± {:.0} %)", (200.0 * error).max(1.0)),
            Self::Unknown => f.write_str("not known"),
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

pub(super) fn count(space: &Space) -> Count {
    if space.only.is_some() {
        return count_restricted(space);
    }
    space.outlook().amounts(space).into_iter().fold(Count::Exact(1), times)
}

fn times(all: Count, next: Amount) -> Count {
    match (all, next) {
        (Count::Exact(0), _) | (_, Amount::Exactly(0)) => Count::Exact(0),
        (Count::Unknown, _) | (_, Amount::Unknown) => Count::Unknown,
        (Count::Exact(a), Amount::Exactly(b)) => match a.checked_mul(b) {
            Some(product) => Count::Exact(product),
            None => Count::About { count: to_f64(a) * to_f64(b), error: 0.0 },
        },
        (Count::Exact(exact), Amount::About(count, error)) => Count::About { count: count * to_f64(exact), error },
        (Count::About { count, error }, Amount::Exactly(exact)) => Count::About { count: count * to_f64(exact), error },
        (Count::About { count, error }, Amount::About(next, its)) => {
            Count::About { count: count * next, error: error.hypot(its) }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn to_f64(count: u128) -> f64 {
    count as f64
}

/// Counts the configs of a space that a function restricts, by a walk or, if there are too many, by random draws.
fn count_restricted(space: &Space) -> Count {
    /// Settings that the walk tries before draws take over, and the number of draws: round numbers, as bounds on time.
    const FUEL: u64 = 150_000;
    const DRAWS: usize = 20_000;
    let (mut walk, mut fuel, mut found) = (Walk::new(space), FUEL, 0_u128);
    loop {
        match walk.advance(&mut fuel) {
            Advance::Found(_) => found += 1,
            Advance::End => return Count::Exact(found),
            Advance::OutOfFuel => break,
        }
    }
    let all = space.outlook().amounts(space).into_iter().fold(Count::Exact(1), times);
    let (size, error) = match all {
        Count::Exact(exact) => (to_f64(exact), 0.0),
        Count::About { count, error } => (count, error),
        Count::Unknown => return Count::Unknown,
    };
    let (hits, draws) = (to_f64(space.draws(0, DRAWS).len() as u128), to_f64(DRAWS as u128));
    if hits == 0.0 {
        return Count::Unknown;
    }
    let share = hits / draws;
    // Wald's standard error of a share, relative to the share.
    Count::About { count: (share * size).max(to_f64(found)), error: ((1.0 - share) / hits).sqrt().hypot(error) }
}
