//! Bounds on metrics, and the memory that must stay free.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::quantity;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

const COMPARISONS: &[(&str, Comparison)] = &[
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

/// A bound on a metric, such as `peak_memory < 70GiB`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Constraint {
    text: String,
    metric: String,
    comparison: Comparison,
    bound: f64,
}

/// The error for a string that is no constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no constraint: {reason}")]
pub struct ConstraintError {
    text: String,
    reason: String,
}

impl TryFrom<String> for Constraint {
    type Error = ConstraintError;

    fn try_from(text: String) -> Result<Self, ConstraintError> {
        Self::parse(&text)
    }
}

impl From<Constraint> for String {
    fn from(constraint: Constraint) -> Self {
        constraint.text
    }
}

impl Constraint {
    /// Parses `metric < bound`, with `<`, `<=`, `>` or `>=`. The bound is a number, a size (bytes), a duration (seconds) or
    /// a percentage (a share).
    ///
    /// # Errors
    /// The string has another format.
    pub fn parse(text: &str) -> Result<Self, ConstraintError> {
        let error = |reason: String| ConstraintError { text: text.to_owned(), reason };
        let (place, sign, comparison) = COMPARISONS
            .iter()
            .filter_map(|&(sign, comparison)| Some((text.find(sign)?, sign, comparison)))
            .min_by_key(|&(place, sign, _)| (place, std::cmp::Reverse(sign.len())))
            .ok_or_else(|| error("write `metric < bound`, with <, <=, > or >=".to_owned()))?;
        let metric = text[..place].trim().to_owned();
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
        if metric.is_empty() || !metric.chars().all(is_name) {
            return Err(error("there is no metric in front of the sign".to_owned()));
        }
        let bound = text[place + sign.len()..].trim();
        let bound = parse_bound(bound).ok_or_else(|| {
            error(format!("`{bound}` is no number, size (`70GiB`), duration (`50ms`) or percentage (`10%`)"))
        })?;
        Ok(Self { text: text.trim().to_owned(), metric, comparison, bound })
    }

    pub(super) fn is_met_by(&self, number: f64) -> bool {
        match self.comparison {
            Comparison::Less => number < self.bound,
            Comparison::LessOrEqual => number <= self.bound,
            Comparison::Greater => number > self.bound,
            Comparison::GreaterOrEqual => number >= self.bound,
        }
    }

    /// Returns the name of the metric.
    pub fn metric(&self) -> &str {
        &self.metric
    }

    /// Returns the constraint as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn parse_bound(text: &str) -> Option<f64> {
    if let Some(percentage) = text.strip_suffix('%') {
        return percentage.trim().parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number / 100.0);
    }
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    #[expect(clippy::cast_precision_loss, reason = "a bound")]
    let bytes = quantity::parse_bytes(text).ok().map(|bytes| bytes as f64);
    bytes.or_else(|| quantity::parse_duration(text).ok().map(|duration| duration.as_secs_f64()))
}

/// The memory that must stay free.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Headroom {
    /// A share of the device's memory, from 0 to 1.
    Fraction(f64),
    /// A number of bytes.
    Bytes(u64),
}

impl Headroom {
    /// Returns the bytes that must stay free out of a total.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a size is a size"
    )]
    pub fn of(self, capacity_bytes: u64) -> u64 {
        match self {
            Self::Fraction(share) => (capacity_bytes as f64 * share.clamp(0.0, 1.0)) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction(share) => write!(f, "{} %", quantity::show_number(share * 100.0)),
            Self::Bytes(bytes) => f.write_str(&quantity::show_bytes(*bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_take_sizes_durations_and_shares() {
        let bound = |text: &str| Constraint::parse(text).map(|constraint| constraint.bound);
        assert_eq!(bound("peak_memory < 70GiB").unwrap(), 75_161_927_680.0);
        assert_eq!(bound("step_time <= 50ms").unwrap(), 0.05);
        assert_eq!(bound("memory_headroom>=15%").unwrap(), 0.15);
        assert_eq!(bound("loss < -2.5").unwrap(), -2.5);
        for bad in ["", "loss", "< 3", "loss < ", "loss < three", "a b < 3", "loss = 3"] {
            assert!(Constraint::parse(bad).is_err(), "{bad}");
        }
    }
}
