//! What better means, and what is feasible.

mod constraint;
pub mod front;
mod goal;
mod headroom;
mod scalarised;
mod weighted;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::model::outcome::{Estimate, Measurement, Memory, Outcome};
use crate::model::quantity;
use crate::model::space::Config;
use crate::model::trial::{History, Trial};
use scalarised::Scalarised;
use weighted::Weighted;

pub use constraint::{Constraint, ConstraintError};
pub use goal::{COST, Direction, Goal, Price};
pub use headroom::Headroom;

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

/// What better means and what is feasible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    kind: Kind,
    price: Option<Price>,
    constraints: Vec<Constraint>,
    memory_headroom: Headroom,
    on_tie: OnTie,
}

/// What counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// One metric.
    Single(Goal),
    /// A product of several.
    Weighted(Weighted),
    /// Several that nothing weighs against each other.
    Pareto(Vec<Goal>),
    /// One of the questions that a search for a front consists of; never kept.
    #[serde(skip)]
    Scalarised(Scalarised),
}

/// Why goals make no objective.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectiveError {
    /// One or none.
    #[error("a front needs at least two metrics, and there {}", if *.found == 0 { "is none" } else { "is one" })]
    TooFew {
        /// How many there are.
        found: usize,
    },
    /// No weight.
    #[error("there is no weight")]
    NoWeights,
    /// The same metric again.
    #[error("the metric `{metric}` is there twice")]
    Twice {
        /// Which.
        metric: String,
    },
    /// Something else than a number larger than zero, or one that no sum can hold.
    #[error("the weight of `{metric}` must be a number {}, and this is {}", weights_are(*weight), shown(*weight))]
    Weight {
        /// Whose.
        metric: String,
        /// What it is.
        weight: f64,
    },
}

/// The smallest and the largest weight: sums beyond these would not be finite.
const WEIGHTS: std::ops::RangeInclusive<f64> = 1e-100..=1e100;

/// What a weight has to be, where this one is not.
fn weights_are(weight: f64) -> String {
    let is_size = weight > 0.0 && weight.is_finite();
    if is_size { format!("from {:e} to {:e}", WEIGHTS.start(), WEIGHTS.end()) } else { "larger than 0".to_owned() }
}

/// A number without hundreds of digits.
fn shown(number: f64) -> String {
    let is_long = number != 0.0 && !(1e-4..1e16).contains(&number.abs());
    if is_long { format!("{number:e}") } else { number.to_string() }
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
        Self::of(Kind::Single(Goal::new(metric, direction)))
    }

    /// The best weighted product of several metrics: the score of a config is how many times better than the first measured
    /// one (or the baseline) it is, as a geometric mean over the metrics with these weights. Weights count in proportion to
    /// their sum; a metric that is zero or negative makes a config infeasible.
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
    /// There is none, one is not larger than zero, or a metric is there twice.
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

    /// Several metrics of which none is given up for another: the result is the [front](crate::search::Study::front) of
    /// configs that no other is better than in all of them.
    ///
    /// Where one number is needed (the order of a list, a strategy that is asked without a tuner), the first metric is it.
    ///
    /// # Errors
    /// There are fewer than two, or a metric is there twice.
    pub fn pareto(goals: impl IntoIterator<Item = Goal>) -> Result<Self, ObjectiveError> {
        let goals: Vec<Goal> = goals.into_iter().collect();
        each_once(goals.iter())?;
        if goals.len() < 2 {
            return Err(ObjectiveError::TooFew { found: goals.len() });
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

    /// Sets what an hour costs: without it there is no [`COST`].
    #[must_use]
    pub fn price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// The name of the number that is made as large or small as possible: that of the metric; of a product of several
    /// `score`; where none is given up for another, the first.
    pub fn metric(&self) -> &str {
        match &self.kind {
            Kind::Single(goal) => &goal.metric,
            Kind::Pareto(goals) => goals.first().map_or("", |goal| goal.metric.as_str()),
            Kind::Weighted(_) | Kind::Scalarised(_) => "score",
        }
    }

    /// Whether more or less of it is better.
    pub fn direction(&self) -> Direction {
        match &self.kind {
            Kind::Single(goal) => goal.direction,
            Kind::Pareto(goals) => goals.first().map_or(Direction::Maximize, |goal| goal.direction),
            Kind::Weighted(_) | Kind::Scalarised(_) => Direction::Maximize,
        }
    }

    /// The metrics that count, in the order in which they were named.
    pub fn goals(&self) -> &[Goal] {
        match &self.kind {
            Kind::Single(goal) => std::slice::from_ref(goal),
            Kind::Pareto(goals) => goals,
            Kind::Weighted(weighted) => &weighted.goals,
            Kind::Scalarised(question) => &question.goals,
        }
    }

    /// The weights of the goals, which add up to one; none where they are not weighed.
    pub fn weights(&self) -> Option<&[f64]> {
        match &self.kind {
            Kind::Weighted(weighted) => Some(&weighted.weights),
            Kind::Scalarised(question) => Some(&question.weights),
            Kind::Single(_) | Kind::Pareto(_) => None,
        }
    }

    /// Whether the result is a front.
    pub fn is_pareto(&self) -> bool {
        matches!(self.kind, Kind::Pareto(_))
    }

    /// Whether scores of a weighted product are relative to some measurement; other objectives have none.
    pub fn is_relative(&self) -> bool {
        matches!(&self.kind, Kind::Weighted(weighted) if weighted.reference.is_some())
    }

    /// What happens on a tie.
    pub fn tie_rule(&self) -> OnTie {
        self.on_tie
    }

    /// The bounds on metrics.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// One of the goals alone, with the same price.
    pub fn alone(&self, goal: &Goal) -> Self {
        Self { kind: Kind::Single(goal.clone()), ..self.clone() }
    }

    /// What the next proposal is to make as large as possible: where several metrics count and none is given up for another,
    /// each time another weighting of them, which follows from the history and the seed; else what it always is.
    pub fn scalarised(&self, history: &History, seed: u64) -> Cow<'_, Self> {
        let Kind::Pareto(goals) = &self.kind else { return Cow::Borrowed(self) };
        let known: Vec<Vec<f64>> = history.searched().filter_map(|trial| self.numbers_of(&trial.outcome)).collect();
        let question = Scalarised::new(goals, &known, history.searched().count(), seed);
        Cow::Owned(Self { kind: Kind::Scalarised(question), ..self.clone() })
    }

    /// The same with scores of a weighted product that are relative to a measurement; what is better stays as it is.
    #[must_use]
    pub fn relative_to(mut self, measurement: &Measurement) -> Self {
        let numbers = self.numbers(measurement);
        if let (Kind::Weighted(weighted), Ok(numbers)) = (&mut self.kind, numbers) {
            weighted.reference = Some(numbers.iter().map(|number| number.value).collect());
        }
        self
    }

    /// The same with scores relative to the baseline, as it was first measured in full, or to the first trial that may win
    /// where there is no baseline that may.
    #[must_use]
    pub fn relative_to_first(self, history: &History, baseline: Option<&Config>) -> Self {
        let is_feasible = |trial: &&Trial| self.score_of(&trial.outcome).is_some();
        let of_baseline =
            baseline.and_then(|config| history.of(config).filter(|trial| !trial.purpose.is_short()).find(is_feasible));
        let first = || history.contenders(|outcome| self.score_of(outcome).is_some()).find(is_feasible);
        match of_baseline.or_else(first).and_then(|trial| trial.outcome.measurement()) {
            Some(measurement) => self.relative_to(measurement),
            None => self,
        }
    }

    /// What speaks for a proposal, with what it is proposed for, where that is one of several questions.
    pub fn with_question(&self, reason: String) -> String {
        let Kind::Scalarised(question) = &self.kind else { return reason };
        let weighed = question.goals.iter().zip(&question.weights);
        let parts: Vec<String> =
            weighed.map(|(goal, weight)| format!("{} {:.0} %", goal.metric, weight * 100.0)).collect();
        format!("{reason}; weighs {}", parts.join(", "))
    }

    /// The number that is made as large or small as possible, with its interval where there is one.
    pub fn estimate(&self, measurement: &Measurement) -> Option<Estimate> {
        let numbers = || self.numbers(measurement).ok();
        match &self.kind {
            Kind::Single(goal) => self.estimate_of(&goal.metric, measurement),
            Kind::Pareto(goals) => self.estimate_of(&goals.first()?.metric, measurement),
            Kind::Weighted(weighted) => Some(weighted.score(&numbers()?)),
            Kind::Scalarised(question) => Some(question.score(&numbers()?)),
        }
    }

    /// A metric of a measurement by its name, what an hour costs included, with its interval where there is one.
    pub fn estimate_of(&self, metric: &str, measurement: &Measurement) -> Option<Estimate> {
        goal::estimate(metric, measurement, self.price)
    }

    /// The number to make as large as possible: the metric, or its negative when less is better.
    pub fn score(&self, metric: f64) -> f64 {
        match self.direction() {
            Direction::Maximize => metric,
            Direction::Minimize => -metric,
        }
    }

    /// The goals' numbers, or why a measurement without them may not win.
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
        match self.judge(measurement) {
            Judgement::Feasible(_) => Some(self.numbers(measurement).ok()?.iter().map(|number| number.value).collect()),
            Judgement::Infeasible { .. } => None,
        }
    }

    /// Whether a measurement is feasible, and how good.
    pub fn judge(&self, measurement: &Measurement) -> Judgement {
        let infeasible = |reason: String, lacks_memory| Judgement::Infeasible { reason, lacks_memory };
        if measurement.memory.allocator_retries.is_some_and(|retries| retries > 0) {
            return infeasible("does not fit: the allocator had to free its caches and try again".to_owned(), true);
        }
        if let (Some(peak), Some(capacity)) = (measurement.memory.peak_bytes, measurement.memory.capacity_bytes) {
            let free = capacity.saturating_sub(peak);
            if free < self.memory_headroom.of(capacity) {
                let free = quantity::show_bytes(free);
                return infeasible(format!("leaves {free} of memory free, less than {}", self.memory_headroom), true);
            }
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

    /// The score of an outcome that may win.
    pub fn score_of(&self, outcome: &Outcome) -> Option<f64> {
        match self.judge(outcome.measurement()?) {
            Judgement::Feasible(score) => Some(score),
            Judgement::Infeasible { .. } => None,
        }
    }

    /// The score of each goal of an outcome that may win: the larger, the better.
    pub fn scores_of(&self, outcome: &Outcome) -> Option<Vec<f64>> {
        let numbers = self.numbers_of(outcome)?;
        Some(self.goals().iter().zip(numbers).map(|(goal, number)| goal.score(number)).collect())
    }

    /// The score of an outcome that was measured, if only in part: one that was stopped early cannot win, but says where
    /// the better ones are not.
    pub fn partial_score_of(&self, outcome: &Outcome) -> Option<f64> {
        match self.judge(outcome.partial_measurement()?) {
            Judgement::Feasible(score) => Some(score),
            Judgement::Infeasible { .. } => None,
        }
    }

    /// Whether it is throughput that counts and nothing else, and the more the better.
    pub fn is_largest_throughput(&self) -> bool {
        matches!(&self.kind, Kind::Single(goal) if goal.metric == "throughput" && goal.direction == Direction::Maximize)
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

fn each_once<'g>(goals: impl Iterator<Item = &'g Goal>) -> Result<(), ObjectiveError> {
    let mut seen: Vec<&str> = Vec::new();
    for goal in goals {
        if seen.contains(&goal.metric.as_str()) {
            return Err(ObjectiveError::Twice { metric: goal.metric.clone() });
        }
        seen.push(&goal.metric);
    }
    Ok(())
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
