//! Cholesky factors of small symmetric matrices, and solving with them.

/// The lower triangle of a square matrix, row after row.
#[derive(Debug, Clone)]
pub(super) struct Triangle {
    size: usize,
    entries: Vec<f64>,
}

impl Triangle {
    /// A symmetric matrix by its lower triangle: `entry(row, column)` for columns up to the row.
    pub(super) fn symmetric(size: usize, mut entry: impl FnMut(usize, usize) -> f64) -> Self {
        let entries = (0..size).flat_map(|row| (0..=row).map(move |column| (row, column)));
        Self { size, entries: entries.map(|(row, column)| entry(row, column)).collect() }
    }

    /// Makes a symmetric matrix from its diagonal and, row by row, the entries below it.
    pub(super) fn from_parts(diagonal: &[f64], below: &[f64]) -> Self {
        let entry =
            |row: usize, column: usize| if column < row { below[row * (row - 1) / 2 + column] } else { diagonal[row] };
        Self::symmetric(diagonal.len(), entry)
    }

    /// A row up to its diagonal.
    #[inline]
    pub(super) fn row(&self, row: usize) -> &[f64] {
        let start = row * (row + 1) / 2;
        &self.entries[start..=start + row]
    }

    /// The factor L of a symmetric matrix A = L Lᵀ; `None` if the matrix is not positive definite.
    pub(super) fn cholesky(mut self) -> Option<Self> {
        for row in 0..self.size {
            let (known, rest) = self.entries.split_at_mut(row * (row + 1) / 2);
            let own = &mut rest[..=row];
            for column in 0..row {
                let other = &known[column * (column + 1) / 2..][..=column];
                own[column] = (own[column] - dot(&own[..column], &other[..column])) / other[column];
            }
            let square = own[row] - dot(&own[..row], &own[..row]);
            if square.is_nan() || square <= 0.0 {
                return None;
            }
            own[row] = square.sqrt();
        }
        Some(self)
    }

    /// Solves L x = b in place.
    #[inline]
    pub(super) fn solve(&self, b: &mut [f64]) {
        for row in 0..self.size {
            let own = self.row(row);
            b[row] = (b[row] - dot(&own[..row], &b[..row])) / own[row];
        }
    }

    /// Solves Lᵀ x = b in place.
    pub(super) fn solve_transposed(&self, b: &mut [f64]) {
        for row in (0..self.size).rev() {
            let own = self.row(row);
            b[row] /= own[row];
            let x = b[row];
            for (target, entry) in b[..row].iter_mut().zip(own) {
                *target -= entry * x;
            }
        }
    }

    /// Returns the inverse of A, if this is the factor of A.
    pub(super) fn inverse(&self) -> Self {
        // Columns of L⁻¹, each from its diagonal on. A⁻¹ is the transpose of L⁻¹ times L⁻¹.
        let size = self.size;
        let columns: Vec<Vec<f64>> = (0..size)
            .map(|column| {
                let mut x = vec![0.0; size - column];
                x[0] = 1.0 / self.row(column)[column];
                for row in column + 1..size {
                    let own = self.row(row);
                    x[row - column] = -dot(&own[column..row], &x[..row - column]) / own[row];
                }
                x
            })
            .collect();
        Self::symmetric(size, |row, column| dot(&columns[row], &columns[column][row - column..]))
    }
}

/// Returns the sum of products, as eight partial sums in an order that does not depend on the machine.
#[inline]
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a_parts, b_parts) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a_parts.remainder().iter().zip(b_parts.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_parts.zip(b_parts) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sum(sums) + rest
}

#[inline]
pub(super) fn sum(lanes: [f64; 8]) -> f64 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (b + f)) + ((c + g) + (d + h))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Triangle {
        let points = [0.0, 0.3, 1.0, 2.0, 2.1, 5.0_f64];
        Triangle::symmetric(6, |i, j| (-(points[i] - points[j]).powi(2)).exp() + if i == j { 0.01 } else { 0.0 })
    }

    #[test]
    fn the_inverse_and_both_solves_together_undo_the_matrix() {
        let (a, factor) = (matrix(), matrix().cholesky().unwrap());
        let inverse = factor.inverse();
        let entry = |m: &Triangle, i: usize, j: usize| if i >= j { m.row(i)[j] } else { m.row(j)[i] };
        let b = [1.0, -2.0, 0.5, 3.0, 0.0, 1.5];
        let mut x = b;
        factor.solve(&mut x);
        factor.solve_transposed(&mut x);
        for (i, wanted) in b.iter().enumerate() {
            for j in 0..6 {
                let product: f64 = (0..6).map(|k| entry(&a, i, k) * entry(&inverse, k, j)).sum();
                assert!((product - f64::from(u8::from(i == j))).abs() < 1e-9, "{i} {j} {product}");
            }
            let product: f64 = (0..6).map(|j| entry(&a, i, j) * x[j]).sum();
            assert!((product - wanted).abs() < 1e-9);
        }
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factor() {
        assert!(Triangle::symmetric(2, |i, j| if i == j { 1.0 } else { 2.0 }).cholesky().is_none());
        assert!(Triangle::symmetric(2, |_, _| f64::NAN).cholesky().is_none());
    }
}
