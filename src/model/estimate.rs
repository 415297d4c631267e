//! A measured number with its interval.

use serde::{Deserialize, Serialize};

/// A number with its uncertainty, if known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best single number.
    pub value: f64,
    /// Lower end of the 95% interval; absent if the spread is unknown, as after one observation.
    pub low: Option<f64>,
    /// Upper end of the 95% interval; absent together with `low`.
    pub high: Option<f64>,
}

impl Estimate {
    /// Makes an estimate without an interval.
    pub fn point(value: f64) -> Self {
        Self { value, low: None, high: None }
    }

    /// Makes an estimate with a 95% interval.
    pub fn interval(value: f64, low: f64, high: f64) -> Self {
        Self { value, low: Some(low), high: Some(high) }
    }

    /// Returns the estimate of a number that is this many times as large.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let of = |number: f64| number * factor;
        Self { value: of(self.value), low: self.low.map(of), high: self.high.map(of) }
    }

    /// Returns half the width of the interval as a share of the value.
    pub fn relative_half_width(&self) -> Option<f64> {
        Some((self.high? - self.low?) / 2.0 / self.value.abs())
    }
}
