//! The matrix multiplication of stored values. It converts them tile by tile if they are not `f32`.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2};

use super::error::DemoError;
use super::memory::{Buffer, Ledger};
use super::scalar::Scalar;

// Three tiles of this side take 768 KiB as `f32`, which fits into a second-level cache.
const TILE: usize = 256;

/// A stored matrix in row-major order, read directly or transposed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix<'a, S> {
    values: &'a [S],
    columns: usize,
    transposed: bool,
}

impl<'a, S: Scalar> Matrix<'a, S> {
    /// Reads `values` as rows of `columns` values.
    pub(super) fn new(values: &'a [S], columns: usize) -> Self {
        Self { values, columns, transposed: false }
    }

    /// Reads the same values with rows and columns exchanged.
    pub(super) fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// Returns the rows and columns as read.
    fn size(&self) -> (usize, usize) {
        let rows = self.values.len() / self.columns;
        if self.transposed { (self.columns, rows) } else { (rows, self.columns) }
    }

    fn whole<'v>(&self, values: &'v [f32]) -> ArrayView2<'v, f32> {
        oriented(view(values, values.len() / self.columns, self.columns), self.transposed)
    }

    /// Converts the tile that starts at `first` and has `size`, both as read.
    fn tile<'t>(&self, first: (usize, usize), size: (usize, usize), scratch: &'t mut [f32]) -> ArrayView2<'t, f32> {
        let (first, size) = if self.transposed { ((first.1, first.0), (size.1, size.0)) } else { (first, size) };
        let (rows, columns) = size;
        let scratch = &mut scratch[..rows * columns];
        let start = first.0 * self.columns + first.1;
        if columns == self.columns {
            S::load(&self.values[start..start + rows * columns], scratch);
        } else {
            let stored = self.values[start..].chunks(self.columns);
            for (target, row) in scratch.chunks_exact_mut(columns).zip(stored) {
                S::load(&row[..columns], target);
            }
        }
        oriented(view(scratch, rows, columns), self.transposed)
    }
}

/// The operations on a product before it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish<'a, S> {
    /// The bias to add to every row.
    pub(super) bias: Option<&'a [S]>,
    /// True if negative values become zero.
    pub(super) rectify: bool,
}

impl<S: Scalar> Finish<'_, S> {
    /// Stores the bare product.
    pub(super) const NONE: Self = Self { bias: None, rectify: false };

    /// Sets rows that start at column `first_column` to the values that the product is added to. Returns the factor of these rows
    /// in the sum.
    fn prepare(&self, first_column: usize, columns: usize, rows: &mut [f32]) -> f32 {
        let Some(bias) = self.bias else {
            return 0.0;
        };
        let (first_row, others) = rows.split_at_mut(columns);
        S::load(&bias[first_column..first_column + columns], first_row);
        for row in others.chunks_exact_mut(columns) {
            row.copy_from_slice(first_row);
        }
        1.0
    }

    fn complete(&self, values: &mut [f32]) {
        if self.rectify {
            for value in values {
                *value = value.max(0.0);
            }
        }
    }
}

/// Tiles for converted values.
#[derive(Debug)]
pub(super) struct Tiles {
    left: Buffer<f32>,
    right: Buffer<f32>,
    product: Buffer<f32>,
}

impl Tiles {
    /// Allocates the tiles. They are empty if `S` needs no conversion.
    pub(super) fn new<S: Scalar>(ledger: &Ledger) -> Result<Self, DemoError> {
        let side = if S::as_f32(&[]).is_some() { 0 } else { TILE };
        Ok(Self {
            left: ledger.buffer(&[side, side])?,
            right: ledger.buffer(&[side, side])?,
            product: ledger.buffer(&[side, side])?,
        })
    }

    /// Computes `left` times `right` into `product`.
    pub(super) fn multiply<S: Scalar>(
        &mut self,
        left: Matrix<'_, S>,
        right: Matrix<'_, S>,
        finish: Finish<'_, S>,
        product: &mut [S],
    ) {
        let (rows, columns) = (left.size().0, right.size().1);
        if let (Some(left_values), Some(right_values)) = (S::as_f32(left.values), S::as_f32(right.values))
            && let Some(product) = S::as_f32_mut(product)
        {
            let factor = finish.prepare(0, columns, product);
            let (left, right) = (left.whole(left_values), right.whole(right_values));
            let mut sum = view_mut(product, rows, columns);
            general_mat_mul(1.0, &left, &right, factor, &mut sum);
            finish.complete(product);
            return;
        }
        for first_row in (0..rows).step_by(TILE) {
            for first_column in (0..columns).step_by(TILE) {
                let first = (first_row, first_column);
                self.multiply_tile(left, right, finish, first, product);
            }
        }
    }

    fn multiply_tile<S: Scalar>(
        &mut self,
        left: Matrix<'_, S>,
        right: Matrix<'_, S>,
        finish: Finish<'_, S>,
        (first_row, first_column): (usize, usize),
        product: &mut [S],
    ) {
        let (all_rows, inner) = left.size();
        let all_columns = right.size().1;
        let rows = TILE.min(all_rows - first_row);
        let columns = TILE.min(all_columns - first_column);
        let tile = &mut self.product[..rows * columns];
        let mut factor = finish.prepare(first_column, columns, tile);
        for first_inner in (0..inner).step_by(TILE) {
            let depth = TILE.min(inner - first_inner);
            let left = left.tile((first_row, first_inner), (rows, depth), &mut self.left);
            let right = right.tile((first_inner, first_column), (depth, columns), &mut self.right);
            let mut sum = view_mut(tile, rows, columns);
            general_mat_mul(1.0, &left, &right, factor, &mut sum);
            factor = 1.0;
        }
        finish.complete(tile);
        let targets = product[first_row * all_columns..].chunks_mut(all_columns);
        for (source, target) in tile.chunks_exact(columns).zip(targets) {
            S::store(source, &mut target[first_column..first_column + columns]);
        }
    }
}

fn view(values: &[f32], rows: usize, columns: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((rows, columns), values).expect("every caller passes a slice of rows * columns values")
}

fn view_mut(values: &mut [f32], rows: usize, columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((rows, columns), values).expect("every caller passes a slice of rows * columns values")
}

fn oriented(view: ArrayView2<'_, f32>, transposed: bool) -> ArrayView2<'_, f32> {
    if transposed { view.reversed_axes() } else { view }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    // Small whole numbers, whose products and sums are exact in every precision.
    fn whole_numbers<S: Scalar>(length: usize, step: usize) -> (Vec<f32>, Vec<S>) {
        let values: Vec<f32> = (0..length).map(|index| ((index * step % 5) as f32) - 2.0).collect();
        let mut stored = vec![S::default(); length];
        S::store(&values, &mut stored);
        (values, stored)
    }

    fn check<S: Scalar>(rows: usize, inner: usize, columns: usize) {
        let mut tiles = Tiles::new::<S>(&Ledger::new(None)).unwrap();
        let (left, stored_left) = whole_numbers::<S>(rows * inner, 3);
        let (right, stored_right) = whole_numbers::<S>(inner * columns, 7);
        let (bias, stored_bias) = whole_numbers::<S>(columns, 2);
        let mut stored = vec![S::default(); rows * columns];
        let finish = Finish { bias: Some(&stored_bias), rectify: true };
        // Left is stored transposed, as inner rows of `rows` values.
        let left_matrix = Matrix::new(&stored_left, rows).transposed();
        let right_matrix = Matrix::new(&stored_right, columns);
        tiles.multiply(left_matrix, right_matrix, finish, &mut stored);
        let mut product = vec![0.0; stored.len()];
        S::load(&stored, &mut product);
        for (index, &value) in product.iter().enumerate() {
            let (row, column) = (index / columns, index % columns);
            let sum: f32 = (0..inner).map(|depth| left[depth * rows + row] * right[depth * columns + column]).sum();
            let mut expected = [S::default()];
            S::store(&[(sum + bias[column]).max(0.0)], &mut expected);
            let mut expected_value = [0.0];
            S::load(&expected, &mut expected_value);
            assert_eq!(value, expected_value[0], "at {row}, {column}");
        }
    }

    #[test]
    fn products_are_right_within_one_tile_and_across_tiles() {
        for (rows, inner, columns) in [(1, 1, 1), (3, 5, 2), (TILE + 3, 7, 2), (2, TILE + 9, 3)] {
            check::<f32>(rows, inner, columns);
            check::<bf16>(rows, inner, columns);
            check::<f16>(rows, inner, columns);
        }
        check::<f16>(2, 3, TILE * 2 + 1);
    }
}
