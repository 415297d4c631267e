//! A measured number with its interval.

use serde::{Deserialize, Serialize};

/// A number with what is known of its uncertainty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best single number.
    pub value: f64,
    /// Lower end of the 95 % interval; absent when one observation says nothing about spread.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval; absent together with `low`.
    pub high: Option<f64>,
}

impl Estimate {
    /// A number whose uncertainty is unknown.
    pub fn point(value: f64) -> Self {
        Self { value, low: None, high: None }
    }

    /// A number with its 95 % interval.
    pub fn interval(value: f64, low: f64, high: f64) -> Self {
        Self { value, low: Some(low), high: Some(high) }
    }

    /// Half the width of the interval as a share of the value.
    pub fn relative_half_width(&self) -> Option<f64> {
        Some((self.high? - self.low?) / 2.0 / self.value.abs())
    }
}
