//! Metrics as goals, with their directions and displayed units; bounds on metrics, and the memory that must stay free.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::outcome::{Estimate, Measurement};
use crate::model::quantity;

/// The direction in which a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// More is better.
    Maximize,
    /// Less is better.
    Minimize,
}

impl Direction {
    /// Returns the number to maximise: the metric, or its negative if less is better.
    pub(super) fn score(self, metric: f64) -> f64 {
        match self {
            Self::Maximize => metric,
            Self::Minimize => -metric,
        }
    }
}

/// A metric and the direction in which it is better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    /// The metric's name.
    pub metric: String,
    /// The direction in which it is better.
    pub direction: Direction,
}

/// The cost metric; it needs a price.
pub const COST: &str = "cost_per_sample";

/// The metrics with an undisputed direction; the user states the direction of any other metric.
const DIRECTIONS: &[(&str, Direction)] = &[
    ("throughput", Direction::Maximize),
    ("energy_per_sample", Direction::Minimize),
    (COST, Direction::Minimize),
    ("power", Direction::Minimize),
    ("step_time", Direction::Minimize),
    ("peak_memory", Direction::Minimize),
    ("host_memory", Direction::Minimize),
    ("memory_headroom", Direction::Maximize),
    ("data_wait", Direction::Minimize),
    ("loss", Direction::Minimize),
];

impl Goal {
    /// A metric and its direction.
    pub fn new(metric: impl Into<String>, direction: Direction) -> Self {
        Self { metric: metric.into(), direction }
    }

    /// Returns the goal for a metric, or `None` if its direction is not known.
    pub fn known(metric: &str) -> Option<Self> {
        let (metric, direction) = DIRECTIONS.iter().find(|(name, _)| *name == metric)?;
        Some(Self::new(*metric, *direction))
    }

    /// Returns the metrics whose direction is known.
    pub fn known_metrics() -> impl Iterator<Item = &'static str> {
        DIRECTIONS.iter().map(|(name, _)| *name)
    }

    /// Returns the number to maximise: the metric, or its negative if less is better.
    pub fn score(&self, metric: f64) -> f64 {
        self.direction.score(metric)
    }
}

/// The price of an hour of training, in the user's currency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Price {
    /// The price of an hour of the whole run, independent of its GPUs.
    PerHour(f64),
    /// The price of an hour of each GPU that the probe used, or of each rank if no GPU was seen.
    PerGpuHour(f64),
}

impl Price {
    fn per_hour(self, measurement: &Measurement) -> Option<f64> {
        match self {
            Self::PerHour(price) => Some(price),
            Self::PerGpuHour(price) => {
                let gpus = u32::try_from(measurement.machine.gpus.len()).ok().filter(|gpus| *gpus > 0);
                Some(price * f64::from(gpus.or(measurement.ranks)?))
            }
        }
    }
}

/// Returns a metric of a measurement, with its interval if it has one.
///
/// Energy and cost per sample are divided by the throughput, so they get its relative interval (first-order propagation of
/// errors). The price counts as exact. The variation of the power is unknown and is ignored.
pub(super) fn estimate(metric: &str, measurement: &Measurement, price: Option<Price>) -> Option<Estimate> {
    let by_throughput = |number: f64| {
        let half = measurement.throughput.and_then(|throughput| throughput.relative_half_width());
        with_half_width(number, half)
    };
    match metric {
        "throughput" => measurement.throughput,
        "energy_per_sample" if !measurement.metrics.contains_key(metric) => {
            measurement.metric(metric).map(by_throughput)
        }
        COST if price.is_some() => {
            const HOUR: f64 = 3600.0;
            Some(by_throughput(price?.per_hour(measurement)? / HOUR / measurement.throughput?.value))
        }
        _ => measurement.metric(metric).map(Estimate::point),
    }
}

/// Makes an estimate whose interval extends by this share of the number to both sides.
pub(super) fn with_half_width(number: f64, relative: Option<f64>) -> Estimate {
    match relative.filter(|half| half.is_finite()) {
        Some(half) => {
            let half = half * number.abs();
            Estimate::interval(number, number - half, number + half)
        }
        None => Estimate::point(number),
    }
}

pub(super) fn shown(metric: &str, number: f64) -> String {
    match metric {
        "peak_memory" | "host_memory" => quantity::show_bytes(number as u64),
        _ => quantity::show_number(number),
    }
}

/// The signs, each with the order of a valid number and the bound, and whether the number may equal the bound.
const SIGNS: &[(&str, Ordering, bool)] = &[
    ("<=", Ordering::Less, true),
    (">=", Ordering::Greater, true),
    ("<", Ordering::Less, false),
    (">", Ordering::Greater, false),
];

/// A bound on a metric, such as `peak_memory < 70GiB`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Constraint {
    text: String,
    metric: String,
    order: Ordering,
    may_be_equal: bool,
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
        let (place, sign, order, may_be_equal) = SIGNS
            .iter()
            .filter_map(|&(sign, order, may_be_equal)| Some((text.find(sign)?, sign, order, may_be_equal)))
            .min_by_key(|&(place, sign, ..)| (place, Reverse(sign.len())))
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
        Ok(Self { text: text.trim().to_owned(), metric, order, may_be_equal, bound })
    }

    pub(super) fn is_met_by(&self, number: f64) -> bool {
        let order = number.partial_cmp(&self.bound);
        order.is_some_and(|order| order == self.order || self.may_be_equal && order.is_eq())
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
    use crate::model::MachineUse;
    use crate::model::metric::{GpuUse, Metric, Reading, Source};

    fn gpu(watts: f64) -> GpuUse {
        let power = Reading { value: watts, source: Source::Nvml };
        GpuUse { readings: [(Metric::Power, power)].into(), ..GpuUse::default() }
    }

    fn measured(gpus: Vec<GpuUse>) -> Measurement {
        Measurement {
            throughput: Some(Estimate::interval(200.0, 190.0, 210.0)),
            machine: MachineUse { gpus, ..Default::default() },
            ..Measurement::default()
        }
    }

    #[test]
    fn energy_of_a_sample_is_the_power_of_all_gpus_over_the_throughput() {
        let measurement = measured(vec![gpu(300.0), gpu(100.0)]);
        let energy = estimate("energy_per_sample", &measurement, None).unwrap();
        assert_eq!(energy.value, 2.0);
        assert_eq!((energy.low, energy.high), (Some(1.9), Some(2.1)));
        let mut one_is_silent = measurement.clone();
        one_is_silent.machine.gpus.push(GpuUse::default());
        assert_eq!(estimate("energy_per_sample", &one_is_silent, None), None);
        // A `power` that the step reports comes first: its meter may cover more than the GPU boards.
        one_is_silent.metrics.insert("power".to_owned(), 600.0);
        assert_eq!(estimate("energy_per_sample", &one_is_silent, None).unwrap().value, 3.0);
        one_is_silent.metrics.insert("energy_per_sample".to_owned(), 7.0);
        assert_eq!(estimate("energy_per_sample", &one_is_silent, None), Some(Estimate::point(7.0)));
    }

    #[test]
    fn the_price_is_that_of_the_run_or_of_each_gpu() {
        let measurement = measured(vec![gpu(300.0), gpu(100.0)]);
        let cost = |price| estimate(COST, &measurement, price).map(|cost| cost.value);
        assert_eq!(cost(Some(Price::PerHour(7.2))), Some(7.2 / 3600.0 / 200.0));
        assert_eq!(cost(Some(Price::PerGpuHour(7.2))), Some(7.2 * 2.0 / 3600.0 / 200.0));
        assert_eq!(cost(None), None);
        let ranks = Measurement { ranks: Some(4), ..measured(Vec::new()) };
        let cost = estimate(COST, &ranks, Some(Price::PerGpuHour(7.2))).unwrap();
        assert_eq!(cost.value, 7.2 * 4.0 / 3600.0 / 200.0);
        assert_eq!(estimate(COST, &measured(Vec::new()), Some(Price::PerGpuHour(1.0))), None, "how many is not known");
    }

    #[test]
    fn only_what_everybody_agrees_on_has_a_direction() {
        assert_eq!(Goal::known("energy_per_sample"), Some(Goal::new("energy_per_sample", Direction::Minimize)));
        assert!(Goal::known("accuracy").is_none());
        for name in crate::model::outcome::METRICS.iter().map(|(name, _)| *name) {
            assert!(Goal::known(name).is_some(), "{name}");
        }
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
}
