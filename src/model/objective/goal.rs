//! Metrics as goals: their directions, the metrics derived from other metrics, and their displayed units.

use serde::{Deserialize, Serialize};

use crate::model::outcome::{Estimate, Measurement};
use crate::model::quantity;

/// Whether more or less of a metric is better.
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
    /// Returns the price of an hour of this run.
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
            /// Seconds in an hour.
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

/// Formats a metric's number for display; byte counts are shown as sizes.
pub(super) fn shown(metric: &str, number: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown with three digits")]
    match metric {
        "peak_memory" | "host_memory" => quantity::show_bytes(number as u64),
        _ => quantity::show_number(number),
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
}
