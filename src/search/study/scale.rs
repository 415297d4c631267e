//! The scale on which metrics are compared.

/// The scale on which metrics are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// Logarithms: noise is a share of a speed.
    Ratio,
    /// The metric itself, for one that may be zero or negative and then has no logarithm.
    Difference,
}

impl Scale {
    /// Returns the scale that suits all values.
    pub(super) fn of(mut values: impl Iterator<Item = f64>) -> Self {
        if values.all(|value| value > 0.0) { Self::Ratio } else { Self::Difference }
    }

    pub(super) fn point(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value.ln(),
            Self::Difference => value,
        }
    }

    /// Returns the size of which a difference of points is a share.
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
}
