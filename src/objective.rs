//! What better means, and what is feasible.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::outcome::{Estimate, Measurement, Memory, Outcome};
use crate::quantity;

/// Whether more or less of a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// More is better.
    Maximize,
    /// Less is better.
    Minimize,
}

/// Which of several configs within the noise is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTie {
    /// The one that costs least: less memory, then fewer workers and the like, then fewer changes from the baseline.
    #[default]
    Cheapest,
    /// The one that was measured best, however slightly.
    Fastest,
}

/// How much memory must stay free.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Headroom {
    /// A share of what there is, from 0 to 1.
    Fraction(f64),
    /// So many bytes.
    Bytes(u64),
}

impl Headroom {
    /// The bytes that must stay free of so many.
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
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    text: String,
    metric: String,
    comparison: Comparison,
    bound: f64,
}

/// A text that is no constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no constraint: {reason}")]
pub struct ConstraintError {
    text: String,
    reason: String,
}

impl Constraint {
    /// Reads `metric < bound`, with `<`, `<=`, `>` or `>=`; the bound is a number, a size (bytes), a duration (seconds)
    /// or a percentage (a share).
    ///
    /// # Errors
    /// The text has another form.
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

    fn is_met_by(&self, number: f64) -> bool {
        match self.comparison {
            Comparison::Less => number < self.bound,
            Comparison::LessOrEqual => number <= self.bound,
            Comparison::Greater => number > self.bound,
            Comparison::GreaterOrEqual => number >= self.bound,
        }
    }

    /// The constraint as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A metric's number for people: sizes as sizes.
fn shown(metric: &str, number: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown with three digits")]
    match metric {
        "peak_memory" | "host_memory" => quantity::show_bytes(number as u64),
        _ => quantity::show_number(number),
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

/// What better means and what is feasible.
#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    metric: String,
    direction: Direction,
    constraints: Vec<Constraint>,
    memory_headroom: Headroom,
    on_tie: OnTie,
}

/// What an objective makes of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// It may win; larger is better.
    Feasible(f64),
    /// It may not win.
    Infeasible {
        /// Why not, in a few words.
        reason: String,
        /// Whether a config that needs as much memory cannot be feasible either.
        lacks_memory: bool,
    },
}

impl Default for Objective {
    /// The largest throughput, with 10 % of device memory left free.
    fn default() -> Self {
        Self::new("throughput", Direction::Maximize)
    }
}

impl Objective {
    /// The most or least of a metric.
    pub fn new(metric: impl Into<String>, direction: Direction) -> Self {
        Self {
            metric: metric.into(),
            direction,
            constraints: Vec::new(),
            memory_headroom: Headroom::Fraction(0.1),
            on_tie: OnTie::default(),
        }
    }

    /// Adds a bound on a metric.
    #[must_use]
    pub fn constraint(mut self, constraint: Constraint) -> Self {
        self.constraints.push(constraint);
        self
    }

    /// Sets how much device memory must stay free.
    #[must_use]
    pub fn memory_headroom(mut self, headroom: Headroom) -> Self {
        self.memory_headroom = headroom;
        self
    }

    /// How much device memory must stay free.
    pub fn headroom(&self) -> Headroom {
        self.memory_headroom
    }

    /// Sets which of several configs within the noise is named.
    #[must_use]
    pub fn on_tie(mut self, on_tie: OnTie) -> Self {
        self.on_tie = on_tie;
        self
    }

    /// The metric's name.
    pub fn metric(&self) -> &str {
        &self.metric
    }

    /// Whether more or less of it is better.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// What happens on a tie.
    pub fn tie_rule(&self) -> OnTie {
        self.on_tie
    }

    /// The bounds on metrics.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// The metric of a measurement, with its interval where there is one.
    pub fn estimate(&self, measurement: &Measurement) -> Option<Estimate> {
        match self.metric.as_str() {
            "throughput" => measurement.throughput,
            metric => measurement.metric(metric).map(Estimate::point),
        }
    }

    /// The number to make as large as possible: the metric, or its negative when less is better.
    pub fn score(&self, metric: f64) -> f64 {
        match self.direction {
            Direction::Maximize => metric,
            Direction::Minimize => -metric,
        }
    }

    /// Whether a measurement is feasible, and how good.
    pub fn judge(&self, measurement: &Measurement) -> Judgement {
        let infeasible = |reason: String, lacks_memory| Judgement::Infeasible { reason, lacks_memory };
        if measurement.allocator_retries.is_some_and(|retries| retries > 0) {
            return infeasible("does not fit: the allocator had to free its caches and try again".to_owned(), true);
        }
        if let (Some(peak), Some(capacity)) = (measurement.peak_memory_bytes, measurement.memory_capacity_bytes) {
            let free = capacity.saturating_sub(peak);
            if free < self.memory_headroom.of(capacity) {
                let free = quantity::show_bytes(free);
                return infeasible(format!("leaves {free} of memory free, less than {}", self.memory_headroom), true);
            }
        }
        for constraint in &self.constraints {
            match measurement.metric(&constraint.metric) {
                Some(number) if constraint.is_met_by(number) => {}
                Some(number) => {
                    let number = shown(&constraint.metric, number);
                    return infeasible(format!("{} is {number}, not {}", constraint.metric, constraint.text), false);
                }
                None => return infeasible(format!("no `{}` was reported", constraint.metric), false),
            }
        }
        match self.estimate(measurement).map(|estimate| self.score(estimate.value)) {
            Some(score) if score.is_finite() => Judgement::Feasible(score),
            Some(_) => infeasible(format!("{} is not a finite number", self.metric), false),
            None => infeasible(format!("no `{}` was reported", self.metric), false),
        }
    }

    /// The score of an outcome that may win.
    pub fn score_of(&self, outcome: &Outcome) -> Option<f64> {
        match self.judge(outcome.measurement()?) {
            Judgement::Feasible(score) => Some(score),
            Judgement::Infeasible { .. } => None,
        }
    }

    /// The score of an outcome that was measured, if only in part: one that was stopped early cannot win, but says where
    /// the better ones are not.
    pub fn partial_score_of(&self, outcome: &Outcome) -> Option<f64> {
        match self.judge(outcome.partial_measurement()?) {
            Judgement::Feasible(score) => Some(score),
            Judgement::Infeasible { .. } => None,
        }
    }

    /// Whether it is throughput that counts, and the more the better.
    pub fn is_largest_throughput(&self) -> bool {
        self.metric == "throughput" && self.direction == Direction::Maximize
    }

    /// Which memory an outcome shows to be too small, if it does: configs that need as much are then ruled out.
    pub fn lacks_memory(&self, outcome: &Outcome) -> Option<Memory> {
        match outcome {
            Outcome::OutOfMemory { memory, .. } => Some(*memory),
            _ => match self.judge(outcome.partial_measurement()?) {
                Judgement::Infeasible { lacks_memory: true, .. } => Some(Memory::Device),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(throughput: f64) -> Measurement {
        Measurement { throughput: Some(Estimate::point(throughput)), ..Default::default() }
    }

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

    #[test]
    fn headroom_and_retries_make_a_config_infeasible_for_lack_of_memory() {
        let objective = Objective::default();
        let mut measurement = measured(10.0);
        assert_eq!(objective.judge(&measurement), Judgement::Feasible(10.0));
        (measurement.peak_memory_bytes, measurement.memory_capacity_bytes) = (Some(95), Some(100));
        assert!(matches!(objective.judge(&measurement), Judgement::Infeasible { lacks_memory: true, .. }));
        (measurement.peak_memory_bytes, measurement.allocator_retries) = (Some(50), Some(1));
        assert!(matches!(objective.judge(&measurement), Judgement::Infeasible { lacks_memory: true, .. }));
    }

    #[test]
    fn a_metric_that_is_not_there_cannot_win() {
        let objective = Objective::new("loss", Direction::Minimize);
        assert!(matches!(objective.judge(&measured(1.0)), Judgement::Infeasible { lacks_memory: false, .. }));
        let mut measurement = measured(1.0);
        measurement.metrics.insert("loss".to_owned(), 2.0);
        assert_eq!(objective.judge(&measurement), Judgement::Feasible(-2.0));
    }
}
