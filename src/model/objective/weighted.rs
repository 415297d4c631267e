//! Combines several metrics into one number: a product of ratios, each to the power of its weight.
//!
//! The weighted product has no scale: another unit or another reference changes all scores by the same factor. Its logarithm
//! is a weighted sum of logarithms. Sources: Bridgman, "Dimensional analysis", 1922; Miller and Starr, "Executive decisions
//! and operations research", 1969.

use serde::{Deserialize, Serialize};

use super::goal::{Goal, with_half_width};
use crate::model::outcome::Estimate;

/// Goals with weights that add up to one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Weighted {
    pub(super) goals: Vec<Goal>,
    pub(super) weights: Vec<f64>,
    /// The numbers whose score is 1. Without them, the reference is 1 for every metric.
    pub(super) reference: Option<Vec<f64>>,
}

impl Weighted {
    /// Normalises weights, which must be larger than zero and may have any proportion.
    pub(super) fn new(weights: impl IntoIterator<Item = (Goal, f64)>) -> Self {
        let (goals, weights): (Vec<Goal>, Vec<f64>) = weights.into_iter().unzip();
        let sum: f64 = weights.iter().sum();
        Self { goals, weights: weights.into_iter().map(|weight| weight / sum).collect(), reference: None }
    }

    /// Returns the score of some metrics: how many times better than the reference they are. Each metric must be larger than
    /// zero.
    ///
    /// The metrics share the same throughput, so their intervals are added as if fully correlated. This never gives too
    /// narrow an interval.
    pub(super) fn score(&self, metrics: &[Estimate]) -> Estimate {
        let mut logarithm = 0.0;
        let mut half: Option<f64> = None;
        for (at, ((goal, weight), metric)) in self.goals.iter().zip(&self.weights).zip(metrics).enumerate() {
            let reference = self.reference.as_ref().and_then(|numbers| numbers.get(at)).copied().unwrap_or(1.0);
            let ratio = libm::log(metric.value / reference);
            logarithm += weight * goal.score(ratio);
            if let Some(width) = metric.relative_half_width() {
                half = Some(half.unwrap_or(0.0) + weight * width);
            }
        }
        with_half_width(libm::exp(logarithm), half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goals() -> Weighted {
        Weighted::new([(Goal::known("throughput").unwrap(), 2.0), (Goal::known("power").unwrap(), 1.0)])
    }

    #[test]
    fn twice_the_throughput_is_worth_four_times_the_power_at_twice_the_weight() {
        let score = |throughput, power| goals().score(&[Estimate::point(throughput), Estimate::point(power)]).value;
        assert!((score(200.0, 400.0) / score(100.0, 100.0) - 1.0).abs() < 1e-12);
        assert!((score(200.0, 100.0) / score(100.0, 100.0) - 2.0_f64.powf(2.0 / 3.0)).abs() < 1e-12);
    }

    #[test]
    fn another_unit_changes_no_ratio_of_scores() {
        let ratio = |unit: f64| {
            let score = |power| goals().score(&[Estimate::point(10.0), Estimate::point(power * unit)]).value;
            score(300.0) / score(200.0)
        };
        assert!((ratio(1.0) - ratio(1000.0)).abs() < 1e-12);
    }

    #[test]
    fn intervals_count_by_their_weight() {
        let score = goals().score(&[Estimate::interval(100.0, 97.0, 103.0), Estimate::interval(50.0, 47.0, 53.0)]);
        assert!((score.relative_half_width().unwrap() - (0.02 + 0.02)).abs() < 1e-12);
        assert_eq!(goals().score(&[Estimate::point(1.0), Estimate::point(1.0)]), Estimate::point(1.0));
    }
}
