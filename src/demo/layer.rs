//! A fully connected layer. Over the patches of an image it is a convolution.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::error::DemoError;
use super::memory::DemoMemory;
use super::scalar::{Scalar, changed, loaded};

/// The share of each step that is kept in the next step: the usual momentum.
const MOMENTUM: f32 = 0.9;
/// A bound on gradients, so that one bad batch, or an overflow of a half precision, does not ruin the parameters.
const LARGEST_GRADIENT: f32 = 1.0;
/// The numbers that are converted at once: 1 MiB, which fits into a second-level cache.
const PIECE: usize = 1 << 18;

/// Room for numbers that are converted to 32 bits; empty if the type needs no conversion.
#[derive(Debug)]
pub(super) struct Room {
    weights: Vec<f32>,
    inputs: Vec<f32>,
    outputs: Vec<f32>,
}

impl Room {
    /// Allocates room for layers with at most this many weights.
    pub(super) fn new<S: Scalar>(memory: &mut DemoMemory, weights: usize) -> Result<Self, DemoError> {
        let [weights, piece] = if S::as_f32(&[]).is_some() { [0, 0] } else { [weights, PIECE] };
        Ok(Self {
            weights: memory.buffer(&[weights])?,
            inputs: memory.buffer(&[piece])?,
            outputs: memory.buffer(&[piece])?,
        })
    }
}

/// An array of parameters with its gradient and momentum, both times the loss scale of the type.
#[derive(Debug)]
struct Parameters<S> {
    values: Vec<S>,
    gradient: Vec<S>,
    momentum: Vec<S>,
}

impl<S: Scalar> Parameters<S> {
    fn zeros(memory: &mut DemoMemory, count: usize) -> Result<Self, DemoError> {
        let mut buffer = || memory.buffer(&[count]);
        Ok(Self { values: buffer()?, gradient: buffer()?, momentum: buffer()? })
    }

    /// Takes one step against the gradient.
    fn update(&mut self, learning_rate: f32, room: &mut [[f32; 1024]; 3]) {
        let (rate, largest) = (learning_rate / S::LOSS_SCALE, LARGEST_GRADIENT * S::LOSS_SCALE);
        let [room, momentum_room, gradient_room] = room;
        let pieces = self.values.chunks_mut(1024).zip(self.momentum.chunks_mut(1024)).zip(self.gradient.chunks(1024));
        for ((values, momentum), gradient) in pieces {
            let gradient = loaded(gradient, gradient_room);
            changed(momentum, momentum_room, |momentum| {
                for (momentum, gradient) in momentum.iter_mut().zip(gradient) {
                    *momentum = MOMENTUM * *momentum + gradient.max(-largest).min(largest);
                }
                changed(values, room, |values| {
                    for (value, momentum) in values.iter_mut().zip(&*momentum) {
                        *value -= rate * momentum;
                    }
                });
            });
        }
    }
}

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
        memory: &mut DemoMemory,
        inputs: usize,
        outputs: usize,
        (seed, stream): (u64, u64),
    ) -> Result<Self, DemoError> {
        let mut weights = Parameters::<S>::zeros(memory, inputs * outputs)?;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        let bound = (6.0 / inputs as f32).sqrt();
        for value in weights.values.iter_mut() {
            S::store(&[(random.random::<f32>() * 2.0 - 1.0) * bound], std::slice::from_mut(value));
        }
        Ok(Self { inputs, outputs, weights, biases: Parameters::zeros(memory, outputs)? })
    }

    /// Returns the numbers of inputs and outputs of as many rows as are converted at once.
    fn piece(&self) -> (usize, usize) {
        let rows = (PIECE / self.inputs.max(self.outputs)).max(1);
        (rows * self.inputs, rows * self.outputs)
    }

    /// Computes the outputs of every row of inputs.
    pub(super) fn forward(&self, room: &mut Room, input: &[S], is_rectified: bool, output: &mut [S]) {
        let weights = loaded(&self.weights.values, &mut room.weights);
        let (inputs, outputs) = self.piece();
        for (input, output) in input.chunks(inputs).zip(output.chunks_mut(outputs)) {
            let input = loaded(input, &mut room.inputs);
            changed(output, &mut room.outputs, |output| {
                for row in output.chunks_exact_mut(self.outputs) {
                    S::load(&self.biases.values, row);
                }
                let (input, weights) = (matrix(input, self.inputs), matrix(weights, self.outputs));
                general_mat_mul(1.0, &input, &weights, 1.0, &mut matrix_mut(output, self.outputs));
                if is_rectified {
                    output.iter_mut().for_each(|value| *value = value.max(0.0));
                }
            });
        }
    }

    /// Computes the gradients of the weights and biases.
    pub(super) fn backward(&mut self, room: &mut Room, input: &[S], output_gradient: &[S]) {
        let (inputs, outputs) = self.piece();
        let mut biases = vec![0.0; self.outputs];
        changed(&mut self.weights.gradient, &mut room.weights, |sum| {
            sum.fill(0.0);
            for (input, gradient) in input.chunks(inputs).zip(output_gradient.chunks(outputs)) {
                let input = matrix(loaded(input, &mut room.inputs), self.inputs);
                let gradient = loaded(gradient, &mut room.outputs);
                for row in gradient.chunks_exact(self.outputs) {
                    biases.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                }
                let gradient = matrix(gradient, self.outputs);
                general_mat_mul(1.0, &input.t(), &gradient, 1.0, &mut matrix_mut(sum, self.outputs));
            }
        });
        S::store(&biases, &mut self.biases.gradient);
    }

    /// Computes the gradient of the inputs. `input` has the inputs as outputs of a rectified layer.
    pub(super) fn backward_input(&self, room: &mut Room, output_gradient: &[S], input: &[S], input_gradient: &mut [S]) {
        let weights = loaded(&self.weights.values, &mut room.weights);
        let (inputs, outputs) = self.piece();
        for (gradient, target) in output_gradient.chunks(outputs).zip(input_gradient.chunks_mut(inputs)) {
            let gradient = matrix(loaded(gradient, &mut room.outputs), self.outputs);
            changed(target, &mut room.inputs, |target| {
                let weights = matrix(weights, self.outputs);
                general_mat_mul(1.0, &gradient, &weights.t(), 0.0, &mut matrix_mut(target, self.inputs));
            });
        }
        for (gradient, value) in input_gradient.iter_mut().zip(input) {
            *gradient = if value.is_zero() { S::default() } else { *gradient };
        }
    }

    /// Updates the weights and biases from their gradients.
    pub(super) fn update(&mut self, learning_rate: f32) {
        let mut room = [[0.0; 1024]; 3];
        self.weights.update(learning_rate, &mut room);
        self.biases.update(learning_rate, &mut room);
    }
}

#[cfg(test)]
impl<S> Layer<S> {
    /// Returns the weights and their gradient, for a test to shift.
    pub(super) fn weights(&mut self) -> (&mut [S], &[S]) {
        (&mut self.weights.values, &self.weights.gradient)
    }
}

fn matrix(values: &[f32], columns: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((values.len() / columns, columns), values).expect("every caller passes whole rows")
}

fn matrix_mut(values: &mut [f32], columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((values.len() / columns, columns), values).expect("every caller passes whole rows")
}
