//! How alike the values of two configs are expected to be.
//!
//! The product over the parameters of (1 - s) + s k, with k the Matérn correlation of order 5/2 and a length for each
//! parameter (Rasmussen and Williams, "Gaussian processes for machine learning", 2006, section 4.2). The share s, the same
//! for all, tells how much parameters interact: written out, the product has a term for each set of parameters (an
//! analysis of variance, as in Durrande and others, "ANOVA kernels and RKHS of zero mean functions", 2013). With s = 1 only
//! configs that are near in every parameter are alike; with less, what was learned of one parameter holds everywhere.

use super::normal::exp;
use super::points::{Axis, Points};

/// What is fitted to the history, on the scale of standardised values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    /// The length of each axis, as a logarithm.
    pub(super) lengths: Vec<f64>,
    /// How much parameters interact, from 0 to 1.
    pub(super) share: f64,
    /// The variance of the values.
    pub(super) variance: f64,
    /// The variance of noise that no interval tells of.
    pub(super) noise: f64,
}

/// The factor of one axis for pairs of its places, with derivatives of its logarithm.
pub(super) struct Factor {
    columns: usize,
    pub(super) value: Vec<f64>,
    /// By the logarithm of the length.
    pub(super) by_length: Vec<f64>,
    /// By the share.
    pub(super) by_share: Vec<f64>,
}

impl Factor {
    pub(super) fn at(&self, row: u32, column: u32) -> usize {
        row as usize * self.columns + column as usize
    }
}

/// The factors between the places of one set of points and those of another.
pub(super) fn factors(shape: &Shape, axes: &[Axis], rows: &Points, columns: &Points, derivatives: bool) -> Vec<Factor> {
    let each = axes.iter().zip(&shape.lengths).enumerate();
    each.map(|(at, (axis, &length))| {
        let (rows, columns) = (&rows.places[at], &columns.places[at]);
        let inverse = exp(-length);
        let capacity = rows.len() * columns.len();
        let mut factor = Factor {
            columns: columns.len(),
            value: Vec::with_capacity(capacity),
            by_length: Vec::new(),
            by_share: Vec::new(),
        };
        for &row in rows {
            for &column in columns {
                let (correlation, slope) = matern(axis.distance(row, column) * inverse);
                let value = 1.0 - shape.share + shape.share * correlation;
                factor.value.push(value);
                if derivatives {
                    factor.by_length.push(shape.share * slope / value);
                    factor.by_share.push((correlation - 1.0) / value);
                }
            }
        }
        factor
    })
    .collect()
}

/// The Matérn correlation of order 5/2 at a distance in lengths, and its derivative by the logarithm of the length.
fn matern(distance: f64) -> (f64, f64) {
    let scaled = 5.0_f64.sqrt() * distance;
    let decay = exp(-scaled);
    let square = scaled * scaled / 3.0;
    ((1.0 + scaled + square) * decay, square * (1.0 + scaled) * decay)
}

/// The product of all factors for one pair of points.
pub(super) fn product(factors: &[Factor], row: &[u32], column: &[u32]) -> f64 {
    factors
        .iter()
        .zip(row.iter().zip(column))
        .fold(1.0, |product, (factor, (&row, &column))| product * factor.value[factor.at(row, column)])
}
