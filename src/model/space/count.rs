//! Counts the configs of a space, if bounded work can count them.

use std::fmt;

use super::{Advance, Space, Walk};

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
            Self::Exact(count) if *count < 1_000_000_000 => write!(f, "{}", grouped(*count)),
            #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
            Self::Exact(count) => write!(f, "{:.2e}", *count as f64),
            Self::Unknown => f.write_str("unknown"),
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
    if space.only.is_some() { count_restricted(space) } else { space.groups().count(space) }
}

/// Counts the configs of a space that a function restricts, by a walk.
fn count_restricted(space: &Space) -> Count {
    /// Settings that the walk tries: a round number, as a bound on time.
    const FUEL: u64 = 150_000;
    let (mut walk, mut fuel, mut found) = (Walk::new(space), FUEL, 0);
    loop {
        match walk.advance(&mut fuel) {
            Advance::Found(_) => found += 1,
            Advance::End => return Count::Exact(found),
            Advance::OutOfFuel => return Count::Unknown,
        }
    }
}
