//! The network: a convolution, a hidden layer, and one output per class.

use super::error::DemoError;
use super::layer::{Layer, Room};
use super::loader::Batch;
use super::memory::DemoMemory;
use super::scalar::Scalar;
use super::shape::{CLASSES, COLOURS, Shape};

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
        let patches = memory.buffer(&[batch_size, shape.patches(), shape.patch_values()])?;
        Ok(Self {
            shape,
            room: Room::new::<S>(memory, shape.features() * shape.hidden)?,
            convolution: Layer::new(memory, shape.patch_values(), shape.channels, (seed, 0))?,
            hidden: Layer::new(memory, shape.features(), shape.hidden, (seed, 1))?,
            output: Layer::new(memory, shape.hidden, CLASSES, (seed, 2))?,
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
        for layer in [&mut self.convolution, &mut self.hidden, &mut self.output] {
            layer.update(learning_rate);
        }
    }
}

/// Copies every patch of every crop into its own row.
fn gather_patches<S: Scalar>(shape: &Shape, crops: &[S], patches: &mut [S]) {
    let (crop_row, patch_row) = (shape.crop_side * COLOURS, shape.patch_side * COLOURS);
    let per_side = shape.patches_per_side();
    let groups = patches.chunks_exact_mut(shape.patches() * shape.patch_values());
    for (crop, group) in crops.chunks_exact(shape.crop_values()).zip(groups) {
        for (index, patch) in group.chunks_exact_mut(shape.patch_values()).enumerate() {
            let top = index / per_side * shape.patch_step;
            let left = index % per_side * shape.patch_step;
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

    const BATCH_SIZE: usize = 6;

    fn check(layer: fn(&mut Network<f32>) -> &mut Layer<f32>) {
        let mut memory = DemoMemory { bytes: 0, limit_bytes: None };
        let mut batch = Batch::new(&mut memory, &Shape::TINY, BATCH_SIZE).unwrap();
        for (index, pixel) in batch.pixels.iter_mut().enumerate() {
            *pixel = (index * 37 % 101) as f32 / 50.0 - 1.0;
        }
        for (label, class) in batch.labels.iter_mut().zip(0..) {
            *label = class;
        }
        let mut network = Network::<f32>::new(&mut memory, Shape::TINY, BATCH_SIZE, 7).unwrap();
        network.forward(&batch);
        network.backward();
        let gradient = layer(&mut network).weights().1.to_vec();
        let largest =
            (0..gradient.len()).max_by(|&left, &right| gradient[left].abs().total_cmp(&gradient[right].abs())).unwrap();
        let mut loss_at = |shift: f32| {
            layer(&mut network).weights().0[largest] += shift;
            network.forward(&batch)
        };
        let (above, below) = (loss_at(1e-3), loss_at(-2e-3));
        let (slope, gradient) = ((above - below) / 2e-3, f64::from(gradient[largest]));
        assert!((slope - gradient).abs() < 0.02 * gradient.abs(), "slope {slope}, gradient {gradient}");
    }

    #[test]
    fn gradients_are_the_slope_of_the_loss() {
        check(|network| &mut network.convolution);
        check(|network| &mut network.hidden);
        check(|network| &mut network.output);
    }
}
