//! Defines which of two measurements is better, and which are feasible.

pub mod front;
mod goal;
mod weighing;

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::model::outcome::{Estimate, Measurement, Memory, Outcome};
use crate::model::quantity::{self, RunLength};
use crate::model::space::Config;
use crate::model::trial::History;
use weighing::{Scalarised, Weighted};

pub use goal::{COST, Constraint, ConstraintError, Direction, Goal, Headroom, Price};

/// Which config wins if several are within the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTie {
    /// The config that costs least: less memory, then fewer workers and the like, then fewer changes from the baseline.
    #[default]
    Cheapest,
    /// The config with the best measurement, however small its lead.
    Fastest,
}

/// The definition of a better measurement and of a feasible measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct Objective {
    kind: Kind,
    price: Option<Price>,
    constraints: Vec<Constraint>,
    memory_headroom: Headroom,
    on_tie: OnTie,
    /// The length of the whole training, if it is stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_length: Option<RunLength>,
}

/// The quantity that is optimised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// One metric.
    Single(Goal),
    /// A weighted product of several metrics.
    Weighted(Weighted),
    /// Several metrics without weights; the result is a front.
    Pareto(Vec<Goal>),
    /// One of the weightings that a search for a front tries; never written to a file.
    #[serde(skip)]
    Scalarised(Scalarised),
}

/// The error for goals that do not make an objective.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectiveError {
    /// There are fewer goals than the objective needs.
    #[error("a front needs at least two metrics, and there {}", if *.0 == 0 { "is none" } else { "is one" })]
    TooFew(usize),
    /// No goal has a weight.
    #[error("there is no weight")]
    NoWeights,
    /// A metric is named twice.
    #[error("the metric `{0}` is there twice")]
    Twice(String),
    /// A weight that is not larger than zero, or too large or too small for a finite sum.
    #[error("the weight of `{metric}` must be a number {}, and this is {}", weights_are(*weight), shown(*weight))]
    Weight {
        /// The metric of the weight.
        metric: String,
        /// The weight.
        weight: f64,
    },
}

/// The smallest and the largest weight. Round numbers, chosen so that sums and products of weights stay finite.
const WEIGHTS: std::ops::RangeInclusive<f64> = 1e-100..=1e100;

/// Describes the valid weights, for the message about an invalid weight.
fn weights_are(weight: f64) -> String {
    let is_size = weight > 0.0 && weight.is_finite();
    if is_size { format!("from {:e} to {:e}", WEIGHTS.start(), WEIGHTS.end()) } else { "larger than 0".to_owned() }
}

/// Formats a number without hundreds of digits.
fn shown(number: f64) -> String {
    let is_long = number != 0.0 && !(1e-4..1e16).contains(&number.abs());
    if is_long { format!("{number:e}") } else { number.to_string() }
}

/// The conclusion of an objective from a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// The measurement may win; larger is better.
    Feasible(f64),
    /// It may not win.
    Infeasible {
        /// Why not, in a few words.
        reason: String,
        /// True if no config that needs at least as much memory can be feasible.
        lacks_memory: bool,
    },
}

impl Default for Objective {
    /// The largest throughput, with 10% of device memory left free.
    fn default() -> Self {
        Self::new("throughput", Direction::Maximize)
    }
}

impl Objective {
    /// Makes the objective that maximises or minimises one metric.
    pub fn new(metric: impl Into<String>, direction: Direction) -> Self {
        Self::of(Kind::Single(Goal::new(metric, direction)))
    }

    /// Makes the objective of the best weighted product of several metrics.
    ///
    /// The score of a config says how many times better it is than the first measured config (or the baseline). It is the
    /// geometric mean over the metrics with these weights. Weights count in proportion to their sum. A metric that is zero
    /// or negative makes a config infeasible.
    ///
    /// ```
    /// use gputune::model::objective::{Goal, Objective};
    ///
    /// let (fast, frugal) = (Goal::known("throughput"), Goal::known("energy_per_sample"));
    /// let weights = fast.into_iter().zip([1.0]).chain(frugal.into_iter().zip([0.5]));
    /// let objective = Objective::weighted(weights)?;
    /// assert_eq!(objective.goals().len(), 2);
    /// # Ok::<(), gputune::model::objective::ObjectiveError>(())
    /// ```
    ///
    /// # Errors
    /// There is no goal, a weight is not larger than zero, or a metric is named twice.
    pub fn weighted(weights: impl IntoIterator<Item = (Goal, f64)>) -> Result<Self, ObjectiveError> {
        let weights: Vec<(Goal, f64)> = weights.into_iter().collect();
        if weights.is_empty() {
            return Err(ObjectiveError::NoWeights);
        }
        if let Some((goal, weight)) = weights.iter().find(|(_, weight)| !WEIGHTS.contains(weight)) {
            return Err(ObjectiveError::Weight { metric: goal.metric.clone(), weight: *weight });
        }
        each_once(weights.iter().map(|(goal, _)| goal))?;
        Ok(Self::of(Kind::Weighted(Weighted::new(weights))))
    }

    /// Makes the objective of several metrics without weights. The result is the [front](crate::search::Study::front): the
    /// configs that no other config beats in all metrics.
    ///
    /// Code that needs a single number, for example to order a list, uses the first metric. So does a strategy that
    /// runs without a tuner.
    ///
    /// # Errors
    /// There are fewer than two metrics, or a metric is named twice.
    pub fn pareto(goals: impl IntoIterator<Item = Goal>) -> Result<Self, ObjectiveError> {
        let goals: Vec<Goal> = goals.into_iter().collect();
        each_once(goals.iter())?;
        if goals.len() < 2 {
            return Err(ObjectiveError::TooFew(goals.len()));
        }
        Ok(Self::of(Kind::Pareto(goals)))
    }

    fn of(kind: Kind) -> Self {
        Self {
            kind,
            price: None,
            constraints: Vec::new(),
            memory_headroom: Headroom::Fraction(0.1),
            on_tie: OnTie::default(),
            run_length: None,
        }
    }

    /// Adds a bound on a metric.
    pub fn constraint(mut self, constraint: Constraint) -> Self {
        self.constraints.push(constraint);
        self
    }

    /// Sets the device memory that must stay free.
    pub fn memory_headroom(mut self, headroom: Headroom) -> Self {
        self.memory_headroom = headroom;
        self
    }

    /// Returns the device memory that must stay free.
    pub fn headroom(&self) -> Headroom {
        self.memory_headroom
    }

    /// Sets the rule that picks a config among several within the noise.
    pub fn on_tie(mut self, on_tie: OnTie) -> Self {
        self.on_tie = on_tie;
        self
    }

    /// Sets the length of the whole training, for which reports state the time. Without it, the script's own length counts.
    pub fn run_length(mut self, length: RunLength) -> Self {
        self.run_length = Some(length);
        self
    }

    /// Returns the stated length of the whole training.
    pub fn stated_run_length(&self) -> Option<RunLength> {
        self.run_length
    }

    /// Sets the price of an hour; without a price there is no [`COST`].
    pub fn price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// Returns the name of the number to optimise: the metric, `score` for a product, or the first metric of a front.
    pub fn metric(&self) -> &str {
        self.plain().map_or("score", |goal| &goal.metric)
    }

    /// Returns the goal whose metric is the number to optimise; `None` if the number is a score of several metrics.
    fn plain(&self) -> Option<&Goal> {
        match &self.kind {
            Kind::Single(goal) => Some(goal),
            Kind::Pareto(goals) => goals.first(),
            Kind::Weighted(_) | Kind::Scalarised(_) => None,
        }
    }

    /// Returns the direction in which [`metric`](Self::metric) is better.
    pub fn direction(&self) -> Direction {
        self.plain().map_or(Direction::Maximize, |goal| goal.direction)
    }

    /// Returns the goals in the order of their declaration.
    pub fn goals(&self) -> &[Goal] {
        match &self.kind {
            Kind::Single(goal) => std::slice::from_ref(goal),
            Kind::Pareto(goals) => goals,
            Kind::Weighted(weighted) => &weighted.goals,
            Kind::Scalarised(scalarised) => &scalarised.goals,
        }
    }

    /// Returns the weights of the goals, which add up to one; `None` if goals have no weights.
    pub fn weights(&self) -> Option<&[f64]> {
        match &self.kind {
            Kind::Weighted(weighted) => Some(&weighted.weights),
            Kind::Scalarised(scalarised) => Some(&scalarised.weights),
            Kind::Single(_) | Kind::Pareto(_) => None,
        }
    }

    /// Returns true if the result is a front.
    pub fn is_pareto(&self) -> bool {
        matches!(self.kind, Kind::Pareto(_))
    }

    /// Returns true if scores are relative to a measurement; only scores of a weighted product can be.
    pub fn is_relative(&self) -> bool {
        matches!(&self.kind, Kind::Weighted(weighted) if weighted.reference.is_some())
    }

    /// Returns the rule that picks a config among several within the noise.
    pub fn tie_rule(&self) -> OnTie {
        self.on_tie
    }

    /// Returns the bounds on metrics.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// Returns the objective with this goal alone and everything else unchanged.
    pub fn alone(&self, goal: &Goal) -> Self {
        Self { kind: Kind::Single(goal.clone()), ..self.clone() }
    }

    /// Returns the objective for the next proposal. For a front, it is a new weighting of the metrics each time, determined
    /// by the history and the seed. Otherwise it is the unchanged objective.
    pub fn scalarised(&self, history: &History, seed: u64) -> Cow<'_, Self> {
        let Kind::Pareto(goals) = &self.kind else { return Cow::Borrowed(self) };
        let known: Vec<Vec<f64>> = history.searched().filter_map(|trial| self.numbers_of(&trial.outcome)).collect();
        let scalarised = Scalarised::new(goals, &known, history.count_searched(), seed);
        Cow::Owned(Self { kind: Kind::Scalarised(scalarised), ..self.clone() })
    }

    /// Makes the scores of a weighted product relative to the first feasible trial of the baseline, or else to the first feasible
    /// trial of all. The order of configs does not change.
    pub fn relative_to_first(mut self, history: &History, baseline: Option<&Config>) -> Self {
        let of_baseline = || history.of(baseline?).find_map(|trial| self.numbers_of(&trial.outcome));
        let of_all = || history.searched().find_map(|trial| self.numbers_of(&trial.outcome));
        let numbers = of_baseline().or_else(of_all);
        if let (Kind::Weighted(weighted), Some(numbers)) = (&mut self.kind, numbers) {
            weighted.reference = Some(numbers);
        }
        self
    }

    /// Appends the weighting to the reason for a proposal, if the objective is one of several weightings.
    pub fn with_question(&self, reason: String) -> String {
        let Kind::Scalarised(scalarised) = &self.kind else { return reason };
        let weighed = scalarised.goals.iter().zip(&scalarised.weights);
        let parts: Vec<String> =
            weighed.map(|(goal, weight)| format!("{} {:.0} %", goal.metric, weight * 100.0)).collect();
        format!("{reason}; weighs {}", parts.join(", "))
    }

    /// Returns the number that is optimised, with its interval if it has one.
    pub fn estimate(&self, measurement: &Measurement) -> Option<Estimate> {
        let numbers = || self.numbers(measurement).ok();
        match &self.kind {
            Kind::Single(_) | Kind::Pareto(_) => self.estimate_of(&self.plain()?.metric, measurement),
            Kind::Weighted(weighted) => Some(weighted.score(&numbers()?)),
            Kind::Scalarised(scalarised) => Some(scalarised.score(&numbers()?)),
        }
    }

    /// Returns a metric of a measurement by name, the cost included, with its interval if it has one.
    pub fn estimate_of(&self, metric: &str, measurement: &Measurement) -> Option<Estimate> {
        goal::estimate(metric, measurement, self.price)
    }

    /// Returns the number to maximise: the metric, or its negative if less is better.
    pub fn score(&self, metric: f64) -> f64 {
        self.direction().score(metric)
    }

    /// Returns the goals' numbers, or why a measurement without one of them is infeasible.
    fn numbers(&self, measurement: &Measurement) -> Result<Vec<Estimate>, String> {
        let must_be_positive = matches!(self.kind, Kind::Weighted(_));
        let number = |goal: &Goal| match self.estimate_of(&goal.metric, measurement) {
            Some(number) if !number.value.is_finite() => Err(format!("{} is not a finite number", goal.metric)),
            Some(number) if must_be_positive && number.value <= 0.0 => {
                let number = quantity::show_number(number.value);
                Err(format!("{} is {number}, and only numbers larger than 0 can be weighed", goal.metric))
            }
            Some(number) => Ok(number),
            None => Err(format!("no `{}` was reported", goal.metric)),
        };
        self.goals().iter().map(number).collect()
    }

    fn numbers_of(&self, outcome: &Outcome) -> Option<Vec<f64>> {
        let measurement = outcome.measurement()?;
        self.score_of(outcome)?;
        Some(self.numbers(measurement).ok()?.iter().map(|number| number.value).collect())
    }

    /// Judges if a measurement is feasible, and how good it is.
    pub fn judge(&self, measurement: &Measurement) -> Judgement {
        let infeasible = |reason: String, lacks_memory| Judgement::Infeasible { reason, lacks_memory };
        if let Some(reason) = self.tightness(measurement) {
            return infeasible(reason, true);
        }
        for constraint in &self.constraints {
            let metric = constraint.metric();
            match self.estimate_of(metric, measurement).map(|estimate| estimate.value) {
                Some(number) if constraint.is_met_by(number) => {}
                Some(number) => {
                    let number = goal::shown(metric, number);
                    return infeasible(format!("{metric} is {number}, not {}", constraint.text()), false);
                }
                None => return infeasible(format!("no `{metric}` was reported"), false),
            }
        }
        if let Err(reason) = self.numbers(measurement) {
            return infeasible(reason, false);
        }
        match self.estimate(measurement).map(|estimate| self.score(estimate.value)) {
            Some(score) if score.is_finite() => Judgement::Feasible(score),
            _ => infeasible(format!("the {} is not a finite number", self.metric()), false),
        }
    }

    /// Returns why a measurement shows too little memory, if it does.
    fn tightness(&self, measurement: &Measurement) -> Option<String> {
        if measurement.memory.allocator_retries.is_some_and(|retries| retries > 0) {
            return Some("does not fit: the allocator had to free its caches and try again".to_owned());
        }
        let (peak, capacity) = (measurement.memory.peak_bytes?, measurement.memory.capacity_bytes?);
        let free = capacity.saturating_sub(peak);
        let is_tight = free < self.memory_headroom.of(capacity);
        is_tight.then(|| {
            format!("leaves {} of memory free, less than {}", quantity::show_bytes(free), self.memory_headroom)
        })
    }

    /// Returns the score of a feasible outcome.
    pub fn score_of(&self, outcome: &Outcome) -> Option<f64> {
        match self.judge(outcome.measurement()?) {
            Judgement::Feasible(score) => Some(score),
            Judgement::Infeasible { .. } => None,
        }
    }

    /// Returns the score of each goal of a feasible outcome; larger is better.
    pub fn scores_of(&self, outcome: &Outcome) -> Option<Vec<f64>> {
        let numbers = self.numbers_of(outcome)?;
        Some(self.goals().iter().zip(numbers).map(|(goal, number)| goal.score(number)).collect())
    }

    /// Returns true if the objective is the largest throughput and nothing else.
    pub fn is_largest_throughput(&self) -> bool {
        matches!(&self.kind, Kind::Single(goal) if goal.metric == "throughput" && goal.direction == Direction::Maximize)
    }

    /// Returns the kind of memory that an outcome shows to be too small, if any. Configs that need at least as much of it
    /// are then ruled out.
    pub fn lacks_memory(&self, outcome: &Outcome) -> Option<Memory> {
        match outcome {
            Outcome::OutOfMemory { memory, .. } => Some(*memory),
            _ => self.tightness(outcome.measurement()?).map(|_| Memory::Device),
        }
    }
}

fn each_once<'g>(goals: impl Iterator<Item = &'g Goal>) -> Result<(), ObjectiveError> {
    let mut seen = BTreeSet::new();
    match goals.map(|goal| &goal.metric).find(|metric| !seen.insert(*metric)) {
        Some(metric) => Err(ObjectiveError::Twice(metric.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(throughput: f64) -> Measurement {
        Measurement { throughput: Some(Estimate::point(throughput)), ..Default::default() }
    }

    #[test]
    fn headroom_and_retries_make_a_config_infeasible_for_lack_of_memory() {
        let objective = Objective::default();
        let mut measurement = measured(10.0);
        assert_eq!(objective.judge(&measurement), Judgement::Feasible(10.0));
        (measurement.memory.peak_bytes, measurement.memory.capacity_bytes) = (Some(95), Some(100));
        assert_eq!(measurement.metric("memory_headroom"), Some(0.05));
        assert!(matches!(objective.judge(&measurement), Judgement::Infeasible { lacks_memory: true, .. }));
        (measurement.memory.peak_bytes, measurement.memory.allocator_retries) = (Some(50), Some(1));
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
