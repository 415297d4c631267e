//! The kernel: the expected similarity of the values of two configs.
//!
//! It is the product over the parameters of the Matérn correlation of order 3/2, with a length (scale) for each parameter. See
//! Rasmussen and Williams, "Gaussian processes for machine learning", 2006, section 4.2. It allows a jump from one block or buffer
//! size to the next, even if lengths are long.

use libm::exp;

use super::points::{Axis, Points};

/// The kernel's coefficients, which are fitted to the history, on the scale of standardised values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    /// The length of each axis, as a logarithm.
    pub(super) lengths: Vec<f64>,
    pub(super) variance: f64,
    /// The variance of noise beyond what intervals show.
    pub(super) noise: f64,
}

/// The factors of one axis between all points of one set and the places of another, in the order of the places.
pub(super) struct Factor {
    points: usize,
    values: Vec<f64>,
}

impl Factor {
    /// Returns the factors of all points of the first set with a place of the second.
    #[inline]
    pub(super) fn column(&self, place: u32) -> &[f64] {
        &self.values[place as usize * self.points..][..self.points]
    }
}

/// The factors between the points of one set and the places of another, axis after axis.
pub(super) fn factors(axes: &[Axis], shape: &Shape, points: &Points, others: &Points) -> Vec<Factor> {
    let each = axes.iter().zip(&shape.lengths).enumerate();
    each.map(|(at, (axis, &length))| {
        let inverse = exp(-length);
        let numbers: Vec<u32> = points.numbers_on(at).collect();
        let mut values = Vec::with_capacity(points.len() * others.places[at].len());
        let mut by_place = Vec::new();
        for &other in &others.places[at] {
            by_place.clear();
            by_place.extend(points.places[at].iter().map(|&place| matern(axis.distance(place, other) * inverse).0));
            values.extend(numbers.iter().map(|&number| by_place[number as usize]));
        }
        Factor { points: points.len(), values }
    })
    .collect()
}

/// The pairs of different points of one set, in the order of the rows of a triangle without its diagonal. For each axis
/// it has the position of each pair's factor in that axis's table.
pub(super) struct Pairs<'p> {
    axes: &'p [Axis],
    points: &'p Points,
    /// For each axis one number for each pair.
    numbers: Vec<Vec<u32>>,
}

/// The factors of one axis by pairs of its places, with derivatives of their logarithms.
#[derive(Default)]
pub(super) struct Table {
    value: Vec<f64>,
    /// The derivatives by the logarithm of the length.
    slopes: Vec<f64>,
}

impl<'p> Pairs<'p> {
    pub(super) fn of(axes: &'p [Axis], points: &'p Points) -> Self {
        let numbers = (0..axes.len()).map(|axis| {
            let own: Vec<u32> = points.numbers_on(axis).collect();
            let pairs = (0..own.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
            pairs.map(|(i, j)| triangular(own[i], own[j])).collect()
        });
        Self { axes, points, numbers: numbers.collect() }
    }

    pub(super) fn tables(&self, shape: &Shape) -> Vec<Table> {
        let each = self.axes.iter().zip(&shape.lengths).zip(&self.points.places);
        each.map(|((axis, &length), places)| {
            let inverse = exp(-length);
            let mut table = Table::default();
            for (number, &place) in places.iter().enumerate() {
                for &other in &places[..=number] {
                    let (correlation, slope) = matern(axis.distance(place, other) * inverse);
                    table.value.push(correlation);
                    table.slopes.push(slope);
                }
            }
            table
        })
        .collect()
    }

    pub(super) fn covariances(&self, shape: &Shape, tables: &[Table]) -> Vec<f64> {
        let count = self.points.len() * self.points.len().saturating_sub(1) / 2;
        let mut covariances = vec![shape.variance; count];
        for (table, numbers) in tables.iter().zip(&self.numbers) {
            for (covariance, &number) in covariances.iter_mut().zip(numbers) {
                *covariance *= table.value[number as usize];
            }
        }
        covariances
    }

    /// Returns the derivative by the logarithm of one axis's length when each pair has a weight.
    pub(super) fn slope(&self, axis: usize, table: &Table, weights: &[f64]) -> f64 {
        let mut sums = [0.0; 2];
        for (numbers, weights) in self.numbers[axis].chunks(2).zip(weights.chunks(2)) {
            for (sum, (&number, weight)) in sums.iter_mut().zip(numbers.iter().zip(weights)) {
                *sum += weight * table.slopes[number as usize];
            }
        }
        sums[0] + sums[1]
    }
}

/// Returns the position of a pair of places in a triangle with its diagonal.
#[inline]
fn triangular(a: u32, b: u32) -> u32 {
    let (high, low) = (a.max(b), a.min(b));
    high * (high + 1) / 2 + low
}

/// Returns the Matérn correlation of order 3/2 at a distance in lengths, and the derivative of its logarithm by the length's.
#[inline]
fn matern(distance: f64) -> (f64, f64) {
    let scaled = 3.0_f64.sqrt() * distance;
    let decay = exp(-scaled);
    ((1.0 + scaled) * decay, scaled * scaled / (1.0 + scaled))
}
