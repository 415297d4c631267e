//! A fully connected layer. Over the patches of an image it is a convolution.

use super::error::DemoError;
use super::matrix::{Finish, Matrix, Tiles};
use super::memory::Ledger;
use super::parameters::Parameters;
use super::scalar::Scalar;

const PIECE: usize = 256;

/// A matrix of weights and a bias per output.
#[derive(Debug)]
pub(super) struct Layer<S> {
    inputs: usize,
    outputs: usize,
    weights: Parameters<S>,
    biases: Parameters<S>,
}

impl<S: Scalar> Layer<S> {
    /// Allocates the layer. `stream` makes the weights of two layers different.
    pub(super) fn new(
        ledger: &Ledger,
        inputs: usize,
        outputs: usize,
        seed: u64,
        stream: u64,
    ) -> Result<Self, DemoError> {
        let (weights, biases) = initial_parameters(ledger, inputs, outputs, seed, stream)?;
        Ok(Self { inputs, outputs, weights, biases })
    }

    /// Computes the outputs of every row of inputs.
    pub(super) fn forward(&self, tiles: &mut Tiles, input: &[S], rectify: bool, output: &mut [S]) {
        let finish = Finish { bias: Some(&self.biases.values), rectify };
        let input = Matrix::new(input, self.inputs);
        let weights = Matrix::new(&self.weights.values, self.outputs);
        tiles.multiply(input, weights, finish, output);
    }

    /// Computes the gradients of the weights and biases.
    pub(super) fn backward(&mut self, tiles: &mut Tiles, input: &[S], output_gradient: &[S]) {
        let input = Matrix::new(input, self.inputs).transposed();
        let rows = Matrix::new(output_gradient, self.outputs);
        tiles.multiply(input, rows, Finish::NONE, &mut self.weights.gradient);
        sum_rows(output_gradient, self.outputs, &mut self.biases.gradient);
    }

    /// Computes the gradient of the inputs. `input` has the inputs as outputs of a rectified layer.
    pub(super) fn backward_input(
        &self,
        tiles: &mut Tiles,
        output_gradient: &[S],
        input: &[S],
        input_gradient: &mut [S],
    ) {
        let rows = Matrix::new(output_gradient, self.outputs);
        let weights = Matrix::new(&self.weights.values, self.outputs).transposed();
        tiles.multiply(rows, weights, Finish::NONE, input_gradient);
        for (gradient, value) in input_gradient.iter_mut().zip(input) {
            *gradient = if value.is_zero() { S::default() } else { *gradient };
        }
    }

    /// Updates the weights and biases from their gradients.
    pub(super) fn update(&mut self, learning_rate: f32) {
        self.weights.update(learning_rate);
        self.biases.update(learning_rate);
    }
}

/// Returns the initial weights and biases of a layer.
pub(super) fn initial_parameters<S: Scalar>(
    ledger: &Ledger,
    inputs: usize,
    outputs: usize,
    seed: u64,
    stream: u64,
) -> Result<(Parameters<S>, Parameters<S>), DemoError> {
    let mut weights = Parameters::zeros(ledger, &[inputs, outputs])?;
    weights.randomize(seed, stream, (6.0 / inputs as f32).sqrt());
    Ok((weights, Parameters::zeros(ledger, &[outputs])?))
}

#[cfg(test)]
impl<S> Layer<S> {
    /// Returns the gradient of the weights.
    pub(super) fn gradient(&self) -> &[S] {
        &self.weights.gradient
    }

    /// Returns the weights, for a test to shift.
    pub(super) fn weights_mut(&mut self) -> &mut [S] {
        &mut self.weights.values
    }
}

fn sum_rows<S: Scalar>(rows: &[S], columns: usize, sums: &mut [S]) {
    let (mut sum, mut piece) = ([0.0; PIECE], [0.0; PIECE]);
    for (index, target) in sums.chunks_mut(PIECE).enumerate() {
        let first = index * PIECE;
        let (sum, piece) = (&mut sum[..target.len()], &mut piece[..target.len()]);
        sum.fill(0.0);
        for row in rows.chunks_exact(columns) {
            S::load(&row[first..first + target.len()], piece);
            for (sum, value) in sum.iter_mut().zip(piece.iter()) {
                *sum += value;
            }
        }
        S::store(sum, target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_summed_beyond_one_piece() {
        let columns = PIECE + 2;
        let rows: Vec<f32> = (0..3 * columns).map(|index| (index % columns) as f32).collect();
        let mut sums = vec![0.0; columns];
        sum_rows(&rows, columns, &mut sums);
        assert_eq!(sums[1], 3.0);
        assert_eq!(sums[PIECE + 1], 3.0 * (PIECE + 1) as f32);
    }
}
