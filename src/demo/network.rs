//! The network: a convolution, a hidden layer, and one output per class. All three are fully connected layers, the convolution over
//! the patches of an image.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::DemoError;
use super::loader::Batch;
use super::pictures::{CHANNELS, CLASSES, COLOURS, PATCH_SIDE, PATCH_STEP, PATCH_VALUES, Shape};
use super::storage::{DemoMemory, Scalar, changed, loaded};

/// The share of each step that is kept in the next step: the usual momentum.
const MOMENTUM: f32 = 0.9;
/// A bound on gradients, so that one bad batch, or an overflow of a half precision, does not ruin the parameters.
const LARGEST_GRADIENT: f32 = 1.0;
/// The numbers that are converted at once: 1 MiB, which fits into a second-level cache.
const PIECE: usize = 1 << 18;

/// Room for numbers that are converted to 32 bits; empty if the type needs no conversion.
#[derive(Debug)]
struct Room {
    weights: Vec<f32>,
    inputs: Vec<f32>,
    outputs: Vec<f32>,
}

impl Room {
    /// Allocates room for layers with at most this many weights.
    fn new<S: Scalar>(memory: &mut DemoMemory, weights: usize) -> Result<Self, DemoError> {
        let [weights, piece] = if S::as_f32(&[]).is_some() { [0, 0] } else { [weights, PIECE] };
        Ok(Self {
            weights: memory.buffer(&[weights])?,
            inputs: memory.buffer(&[piece])?,
            outputs: memory.buffer(&[piece])?,
        })
    }
}

/// A matrix of weights with its gradient and momentum, both times the loss scale of the type.
#[derive(Debug)]
struct Layer<S> {
    inputs: usize,
    outputs: usize,
    weights: Vec<S>,
    gradient: Vec<S>,
    momentum: Vec<S>,
}

impl<S: Scalar> Layer<S> {
    /// Allocates the layer. `stream` makes the weights of two layers different.
    fn new(memory: &mut DemoMemory, sizes: [usize; 2], seed: u64, stream: u64) -> Result<Self, DemoError> {
        let [inputs, outputs] = sizes;
        let mut buffer = || memory.buffer::<S>(&sizes);
        let [mut weights, gradient, momentum] = [buffer()?, buffer()?, buffer()?];
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        let bound = (6.0 / inputs as f32).sqrt();
        for weight in &mut weights {
            S::store(&[(random.random::<f32>() * 2.0 - 1.0) * bound], std::slice::from_mut(weight));
        }
        Ok(Self { inputs, outputs, weights, gradient, momentum })
    }

    /// Takes one step against the gradient.
    fn update(&mut self, learning_rate: f32, room: &mut [[f32; 1024]; 3]) {
        let (rate, largest) = (learning_rate / S::LOSS_SCALE, LARGEST_GRADIENT * S::LOSS_SCALE);
        let [room, momentum_room, gradient_room] = room;
        let pieces = self.weights.chunks_mut(1024).zip(self.momentum.chunks_mut(1024)).zip(self.gradient.chunks(1024));
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

    /// Returns how many input values and how many output values are converted at once, in whole rows.
    fn piece(&self) -> (usize, usize) {
        let rows = (PIECE / self.inputs.max(self.outputs)).max(1);
        (rows * self.inputs, rows * self.outputs)
    }

    /// Computes the outputs of every row of inputs.
    fn forward(&self, room: &mut Room, input: &[S], is_rectified: bool, output: &mut [S]) {
        let weights = loaded(&self.weights, &mut room.weights);
        let (inputs, outputs) = self.piece();
        for (input, output) in input.chunks(inputs).zip(output.chunks_mut(outputs)) {
            let input = loaded(input, &mut room.inputs);
            changed(output, &mut room.outputs, |output| {
                let (input, weights) = (matrix(input, self.inputs), matrix(weights, self.outputs));
                general_mat_mul(1.0, &input, &weights, 0.0, &mut matrix_mut(output, self.outputs));
                if is_rectified {
                    output.iter_mut().for_each(|value| *value = value.max(0.0));
                }
            });
        }
    }

    /// Computes the gradient of the weights.
    fn backward(&mut self, room: &mut Room, input: &[S], output_gradient: &[S]) {
        let (inputs, outputs) = self.piece();
        changed(&mut self.gradient, &mut room.weights, |sum| {
            sum.fill(0.0);
            for (input, gradient) in input.chunks(inputs).zip(output_gradient.chunks(outputs)) {
                let input = matrix(loaded(input, &mut room.inputs), self.inputs);
                let gradient = matrix(loaded(gradient, &mut room.outputs), self.outputs);
                general_mat_mul(1.0, &input.t(), &gradient, 1.0, &mut matrix_mut(sum, self.outputs));
            }
        });
    }

    /// Computes the gradient of the inputs. `input` holds these inputs, which are the outputs of a rectified layer: an
    /// input of zero has no gradient.
    fn backward_input(&self, room: &mut Room, output_gradient: &[S], input: &[S], input_gradient: &mut [S]) {
        let weights = loaded(&self.weights, &mut room.weights);
        let (inputs, outputs) = self.piece();
        for (gradient, target) in output_gradient.chunks(outputs).zip(input_gradient.chunks_mut(inputs)) {
            let gradient = matrix(loaded(gradient, &mut room.outputs), self.outputs);
            changed(target, &mut room.inputs, |target| {
                let weights = matrix(weights, self.outputs);
                general_mat_mul(1.0, &gradient, &weights.t(), 0.0, &mut matrix_mut(target, self.inputs));
            });
        }
        for (gradient, value) in input_gradient.iter_mut().zip(input) {
            *gradient = if *value == S::default() { S::default() } else { *gradient };
        }
    }
}

fn matrix(values: &[f32], columns: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((values.len() / columns, columns), values).expect("every caller passes whole rows")
}

fn matrix_mut(values: &mut [f32], columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((values.len() / columns, columns), values).expect("every caller passes whole rows")
}

/// The layers and everything between them for one batch size.
#[derive(Debug)]
pub(super) struct Network<S> {
    shape: Shape,
    room: Room,
    convolution: Layer<S>,
    hidden: Layer<S>,
    output: Layer<S>,
    patches: Vec<S>,
    features: Activation<S>,
    units: Activation<S>,
    logits: Activation<S>,
}

/// The outputs of a layer and their gradient.
#[derive(Debug)]
struct Activation<S> {
    values: Vec<S>,
    gradient: Vec<S>,
}

impl<S: Scalar> Activation<S> {
    fn new(memory: &mut DemoMemory, batch_size: usize, units: usize) -> Result<Self, DemoError> {
        Ok(Self { values: memory.buffer(&[batch_size, units])?, gradient: memory.buffer(&[batch_size, units])? })
    }
}

impl<S: Scalar> Network<S> {
    /// Allocates the network with the initial weights of `seed`.
    pub(super) fn new(memory: &mut DemoMemory, shape: Shape, batch_size: usize, seed: u64) -> Result<Self, DemoError> {
        // The largest buffer comes first, so that a batch far too large fails at once.
        let patches = memory.buffer(&[batch_size, shape.patches(), PATCH_VALUES])?;
        Ok(Self {
            shape,
            room: Room::new::<S>(memory, shape.features() * shape.hidden)?,
            convolution: Layer::new(memory, [PATCH_VALUES, CHANNELS], seed, 0)?,
            hidden: Layer::new(memory, [shape.features(), shape.hidden], seed, 1)?,
            output: Layer::new(memory, [shape.hidden, CLASSES], seed, 2)?,
            patches,
            features: Activation::new(memory, batch_size, shape.features())?,
            units: Activation::new(memory, batch_size, shape.hidden)?,
            logits: Activation::new(memory, batch_size, CLASSES)?,
        })
    }

    /// Returns the mean loss of a batch.
    pub(super) fn forward(&mut self, batch: &Batch<S>) -> f64 {
        let Self { room, features, units, logits, .. } = self;
        gather_patches(&self.shape, &batch.pixels, &mut self.patches);
        self.convolution.forward(room, &self.patches, true, &mut features.values);
        self.hidden.forward(room, &features.values, true, &mut units.values);
        self.output.forward(room, &units.values, false, &mut logits.values);
        cross_entropy(&logits.values, &batch.labels, &mut logits.gradient)
    }

    /// Computes all gradients of the latest loss.
    pub(super) fn backward(&mut self) {
        let Self { room, features, units, logits, .. } = self;
        self.output.backward(room, &units.values, &logits.gradient);
        self.output.backward_input(room, &logits.gradient, &units.values, &mut units.gradient);
        self.hidden.backward(room, &features.values, &units.gradient);
        self.hidden.backward_input(room, &units.gradient, &features.values, &mut features.gradient);
        self.convolution.backward(room, &self.patches, &features.gradient);
    }

    /// Updates all parameters from their gradients.
    pub(super) fn update(&mut self, learning_rate: f32) {
        let mut room = [[0.0; 1024]; 3];
        for layer in [&mut self.convolution, &mut self.hidden, &mut self.output] {
            layer.update(learning_rate, &mut room);
        }
    }
}

/// Copies every patch of every crop into its own row.
fn gather_patches<S: Scalar>(shape: &Shape, crops: &[S], patches: &mut [S]) {
    let (crop_row, patch_row) = (shape.crop_side * COLOURS, PATCH_SIDE * COLOURS);
    let per_side = shape.patches_per_side();
    let groups = patches.chunks_exact_mut(shape.patches() * PATCH_VALUES);
    for (crop, group) in crops.chunks_exact(shape.crop_values()).zip(groups) {
        for (index, patch) in group.chunks_exact_mut(PATCH_VALUES).enumerate() {
            let top = index / per_side * PATCH_STEP;
            let left = index % per_side * PATCH_STEP;
            for (row, target) in patch.chunks_exact_mut(patch_row).enumerate() {
                let start = (top + row) * crop_row + left * COLOURS;
                target.copy_from_slice(&crop[start..start + patch_row]);
            }
        }
    }
}

/// Returns the mean loss and writes its gradient, times the loss scale, to `gradient`.
fn cross_entropy<S: Scalar>(logits: &[S], labels: &[u8], gradient: &mut [S]) -> f64 {
    let share = S::LOSS_SCALE / labels.len() as f32;
    let mut loss = 0.0;
    let rows = logits.chunks_exact(CLASSES).zip(gradient.chunks_exact_mut(CLASSES));
    for ((logits, gradient), &label) in rows.zip(labels) {
        let mut values = [0.0; CLASSES];
        S::load(logits, &mut values);
        let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let label = usize::from(label);
        let label_logit = f64::from(values[label] - largest);
        values = values.map(|value| (value - largest).exp());
        let sum: f32 = values.iter().sum();
        loss += f64::from(sum).ln() - label_logit;
        values = values.map(|value| value / sum * share);
        values[label] -= share;
        S::store(&values, gradient);
    }
    loss / labels.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_the_slope_of_the_loss() {
        const BATCH_SIZE: usize = 6;
        let mut memory = DemoMemory { bytes: 0, limit_bytes: None };
        let mut batch = Batch::new(&mut memory, &Shape::TINY, BATCH_SIZE).unwrap();
        for (index, pixel) in batch.pixels.iter_mut().enumerate() {
            *pixel = (index * 37 % 101) as f32 / 50.0 - 1.0;
        }
        batch.labels.copy_from_slice(&[0, 1, 2, 3, 4, 5]);
        type LayerOf = fn(&mut Network<f32>) -> &mut Layer<f32>;
        let layers: [LayerOf; 3] =
            [|network| &mut network.convolution, |network| &mut network.hidden, |network| &mut network.output];
        for layer in layers {
            let mut network = Network::<f32>::new(&mut memory, Shape::TINY, BATCH_SIZE, 7).unwrap();
            network.forward(&batch);
            network.backward();
            let gradient = layer(&mut network).gradient.clone();
            let size = |index: &usize| gradient[*index].abs();
            let largest = (0..gradient.len()).max_by(|left, right| size(left).total_cmp(&size(right))).unwrap();
            let mut loss_at = |shift: f32| {
                layer(&mut network).weights[largest] += shift;
                network.forward(&batch)
            };
            let (above, below) = (loss_at(1e-3), loss_at(-2e-3));
            let (slope, gradient) = ((above - below) / 2e-3, f64::from(gradient[largest]));
            assert!((slope - gradient).abs() < 0.02 * gradient.abs(), "slope {slope}, gradient {gradient}");
        }
    }
}
