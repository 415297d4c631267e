//! Positive numbers in logarithms with derivatives: the value of a formula, and how it depends on its unknowns.

use crate::search::strategy::bayes::normal::{exp, ln};

/// A positive number and the slope of its logarithm along `N` directions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dual<const N: usize> {
    pub(super) value: f64,
    pub(super) slope: [f64; N],
}

impl<const N: usize> Dual<N> {
    /// A number that does not change.
    pub(super) fn constant(value: f64) -> Self {
        Self { value, slope: [0.0; N] }
    }

    /// A number whose logarithm changes along one direction.
    pub(super) fn along(value: f64, direction: usize) -> Self {
        let mut slope = [0.0; N];
        if let Some(own) = slope.get_mut(direction) {
            *own = 1.0;
        }
        Self { value, slope }
    }

    pub(super) fn times(self, other: Self) -> Self {
        self.mixed(other, self.value * other.value, 1.0, 1.0)
    }

    pub(super) fn over(self, other: Self) -> Self {
        self.mixed(other, self.value / other.value, 1.0, -1.0)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let sum = self.value + other.value;
        self.mixed(other, sum, self.value / sum, other.value / sum)
    }

    pub(super) fn scaled(mut self, by: f64) -> Self {
        self.value *= by;
        self
    }

    /// Returns the power of a number whose exponent is itself the unknown of a direction.
    pub(super) fn power(mut self, exponent: f64, direction: usize) -> Self {
        let logarithm = ln(self.value);
        self.value = exp(exponent * logarithm);
        self.slope.iter_mut().for_each(|slope| *slope *= exponent);
        if let Some(own) = self.slope.get_mut(direction) {
            *own += logarithm;
        }
        self
    }

    /// The norm of order two.
    pub(super) fn beside(self, other: Self) -> Self {
        let (a, b) = (self.value * self.value, other.value * other.value);
        self.mixed(other, (a + b).sqrt(), a / (a + b), b / (a + b))
    }

    /// Returns the norm of order four: the larger of two, and somewhat more where they are about equal.
    pub(super) fn larger(self, other: Self) -> Self {
        let (low, high) = if self.value < other.value { (self, other) } else { (other, self) };
        let ratio = low.value / high.value;
        let fourth = ratio * ratio * ratio * ratio;
        let share = fourth / (1.0 + fourth);
        low.mixed(high, high.value * (1.0 + fourth).sqrt().sqrt(), share, 1.0 - share)
    }

    /// Returns the smaller of two, and somewhat less where they are about equal.
    pub(super) fn smaller(self, other: Self) -> Self {
        let one = Self::constant(1.0);
        one.over(one.over(self).larger(one.over(other)))
    }

    fn mixed(mut self, other: Self, value: f64, own: f64, others: f64) -> Self {
        self.value = value;
        for (slope, other) in self.slope.iter_mut().zip(&other.slope) {
            *slope = own * *slope + others * other;
        }
        self
    }
}
