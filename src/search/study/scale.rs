//! The scale on which metrics are compared.

use crate::model::{Objective, Trial};
use crate::search::rounds::Run;

/// The scale on which metrics are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// Logarithms: noise is a share of a speed.
    Ratio,
    /// The metric itself, for a metric that may be zero or negative and so has no logarithm.
    Difference,
}

/// How well the time of an epoch's end is known from the few ends that a probe sees, as a share. A round number.
const EPOCHS_KNOWN: f64 = 0.2;

impl Scale {
    /// Returns the scale that suits all values.
    pub(super) fn of(mut values: impl Iterator<Item = f64>) -> Self {
        if values.all(|value| value > 0.0) { Self::Ratio } else { Self::Difference }
    }

    pub(super) fn is_ratio(self) -> bool {
        self == Self::Ratio
    }

    pub(super) fn point(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value.ln(),
            Self::Difference => value,
        }
    }

    /// Returns the size that a difference of points is compared with.
    pub(super) fn loss_scale(self, point: f64) -> f64 {
        match self {
            Self::Ratio => 1.0,
            Self::Difference => point.abs().max(f64::MIN_POSITIVE),
        }
    }

    /// The inverse of [`point`](Self::point), kept finite.
    pub(super) fn value(self, point: f64) -> f64 {
        let value = match self {
            Self::Ratio => point.exp(),
            Self::Difference => point,
        };
        value.clamp(f64::MIN, f64::MAX)
    }

    /// Returns the result of a trial in its round; `None` for a trial outside of rounds.
    pub(super) fn run(self, trial: &Trial, objective: &Objective) -> Option<Run> {
        let measurement = trial.outcome.measurement()?;
        let round = measurement.round.as_ref()?;
        let value = objective.score(1.0) * self.point(objective.estimate(measurement)?.value);
        // The mean of two slices has half the variance of a slice. A difference of two such means has twice that variance.
        let variance = match round.slices.as_slice() {
            [first, second] if *first > 0.0 && *second > 0.0 => Some((first / second).ln().powi(2) / 2.0),
            _ => None,
        };
        let of_slices = || round.slices.iter().map(|slice| objective.score(1.0) * self.point(*slice));
        let is_several = round.slices.len() > 1 && self.is_ratio();
        let range = is_several
            .then(|| (of_slices().fold(f64::INFINITY, f64::min), of_slices().fold(f64::NEG_INFINITY, f64::max)));
        // A process that had other settings before does not count as the config's own.
        let process = Some(round.process).filter(|_| !measurement.is_live);
        let of_epochs = EPOCHS_KNOWN * measurement.timing.epoch_factor.map_or(0.0, |factor| (1.0 - factor).abs());
        Some(Run { value, range, round: round.number, process, variance, of_epochs })
    }
}
