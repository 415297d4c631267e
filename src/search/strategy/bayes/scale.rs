//! Converts scores to standardised values: larger is better, the mean is about zero, and differences are ratios if scores have
//! logarithms.

use libm::{exp, log as ln};

use crate::model::{Direction, Objective};
use crate::probe::stats::{NORMAL_95, median};

/// The expected deviation of scores, as logarithms, among the configs of a space: for throughputs of training steps, and for any
/// other scores. Recorded tables lie between 0.2 and 1.8.
pub(super) const EXPECTED: f64 = 0.4;
pub(super) const EXPECTED_ANYWHERE: f64 = 1.0;

/// The conversion of scores to values, made from the known scores.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    kind: Kind,
    /// The value below which values are compressed.
    limit: f64,
    spread: f64,
    mean: f64,
    /// The size of one standard unit, as a difference of logarithms, or of scores if they have no logarithm.
    pub(super) deviation: f64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The logarithm of a score, but at least the logarithm of `floor`.
    Logarithm { floor: f64 },
    /// The negative logarithm of a cost.
    Cost,
    /// The score itself, if it has no logarithm.
    Plain,
}

impl Scale {
    /// Makes the scale of at least one score. If scores have logarithms, the `expected` deviation counts like two more scores, so
    /// that the deviation does not depend on a few scores alone.
    pub(super) fn of(objective: &Objective, scores: &[f64], expected: f64) -> Self {
        let kind = Kind::of(objective, scores);
        let mut raw: Vec<f64> = scores.iter().map(|&score| kind.raw(score)).collect();
        raw.sort_by(f64::total_cmp);
        let top = raw.last().copied().unwrap_or(0.0);
        let middle = median(&raw).unwrap_or(0.0);
        // A score far below the median matters only as a bad one; its logarithm would dominate the fit.
        let spread = (top - middle).max(1e-9 * top.abs().max(1.0));
        let mut scale = Self { kind, limit: middle - 2.0 * spread, spread, mean: 0.0, deviation: 1.0 };
        let drawn: Vec<f64> = raw.iter().map(|&raw| scale.drawn(raw)).collect();
        let count = drawn.len().max(1) as f64;
        scale.mean = drawn.iter().sum::<f64>() / count;
        let square = drawn.iter().map(|value| (value - scale.mean) * (value - scale.mean)).sum::<f64>() / count;
        let square = match kind {
            Kind::Logarithm { .. } | Kind::Cost => (square * count + 2.0 * expected * expected) / (count + 2.0),
            Kind::Plain => square,
        };
        scale.deviation = square.sqrt().max(1e-9 * scale.mean.abs().max(1e-3));
        scale
    }

    pub(super) fn value(&self, score: f64) -> f64 {
        (self.drawn(self.kind.raw(score)) - self.mean) / self.deviation
    }

    /// Returns the standardised value without compression, for a model that explains low values.
    pub(super) fn whole_value(&self, score: f64) -> f64 {
        (self.kind.raw(score) - self.mean) / self.deviation
    }

    /// The variance of a value whose score has a 95% interval with this half width.
    pub(super) fn variance(&self, score: f64, relative_half_width: f64) -> f64 {
        /// The widest interval, as a logarithm, that is distinguished: a round number.
        const WIDEST: f64 = 3.0;
        let share = if relative_half_width.is_finite() { relative_half_width.min(WIDEST) } else { WIDEST };
        let width = match self.kind {
            Kind::Plain => share * score.abs(),
            Kind::Logarithm { .. } | Kind::Cost => share,
        };
        let deviation = width / NORMAL_95 / self.deviation;
        (deviation * deviation).min(100.0)
    }

    /// Returns the difference of a value this many standard units above the best, as a share of the best.
    pub(super) fn gain(&self, best_score: f64, units: f64) -> f64 {
        let difference = units * self.deviation;
        match self.kind {
            // If the best is about zero, a share of it makes no sense; then the deviation of the scores is the measure.
            Kind::Plain => difference / best_score.abs().max(self.deviation),
            Kind::Logarithm { .. } => exp(difference.min(50.0)) - 1.0,
            Kind::Cost => 1.0 - exp((-difference).min(50.0)),
        }
    }

    /// Returns true if values are logarithms, so that their differences are ratios.
    pub(super) fn is_of_ratios(&self) -> bool {
        !matches!(self.kind, Kind::Plain)
    }

    fn drawn(&self, raw: f64) -> f64 {
        let below = self.limit - raw;
        if below <= 0.0 {
            return raw;
        }
        let unit = 0.3 * self.spread;
        self.limit - unit * ln(1.0 + below / unit)
    }
}

impl Kind {
    fn of(objective: &Objective, scores: &[f64]) -> Self {
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match objective.direction() {
            Direction::Minimize if most < 0.0 => Self::Cost,
            Direction::Maximize if most > 0.0 => {
                let positive = scores.iter().copied().filter(|score| *score > 0.0);
                Self::Logarithm { floor: positive.fold(most, f64::min) / 2.0 }
            }
            Direction::Minimize | Direction::Maximize => Self::Plain,
        }
    }

    fn raw(self, score: f64) -> f64 {
        match self {
            Self::Logarithm { floor } => ln(score.max(floor)),
            Self::Cost => -ln((-score).max(f64::MIN_POSITIVE)),
            Self::Plain => score,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deviation(direction: Direction, scores: &[f64], expected: f64) -> f64 {
        Scale::of(&Objective::new("throughput", direction), scores, expected).deviation
    }

    #[test]
    fn what_few_scores_differ_by_counts_less_than_what_is_expected() {
        let alike = [100.0, 101.0, 102.0];
        assert!((deviation(Direction::Maximize, &alike, 1.0) - (0.4_f64).sqrt()).abs() < 0.001);
        let many: Vec<f64> = (0..300).map(|number| 100.0 + f64::from(number % 3)).collect();
        assert!(deviation(Direction::Maximize, &many, 1.0) < 0.1);
        // Costs are negative scores.
        let costs = alike.map(|cost| -cost);
        assert!((deviation(Direction::Minimize, &costs, 1.0) - (0.4_f64).sqrt()).abs() < 0.001);
    }

    #[test]
    fn nothing_is_expected_of_scores_without_a_logarithm() {
        let scores = [-1.0, -2.0, -3.0];
        let plain = deviation(Direction::Maximize, &scores, 1.0);
        assert!((plain - (2.0_f64 / 3.0).sqrt()).abs() < 1e-12, "{plain}");
    }

    #[test]
    fn what_is_far_below_the_median_is_drawn_together() {
        let scores = [1e-6, 80.0, 90.0, 100.0, 110.0];
        let scale = Scale::of(&Objective::new("throughput", Direction::Maximize), &scores, 1.0);
        let (low, lower) = (scale.value(1e-3), scale.value(1e-5));
        assert!(lower < low && low - lower < scale.value(100.0) - scale.value(80.0));
        assert!((scale.gain(100.0, scale.value(110.0) - scale.value(100.0)) - 0.1).abs() < 1e-9);
    }
}
