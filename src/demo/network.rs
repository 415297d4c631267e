//! The network: a convolution, a hidden layer, and one output per class.

use super::batch::Batch;
use super::columns::gather_patches;
use super::error::DemoError;
use super::layer::Layer;
use super::matrix::Tiles;
use super::memory::{Buffer, Ledger};
use super::scalar::Scalar;
use super::shape::{CLASSES, Shape};
use super::softmax::cross_entropy;

/// The layers and everything between them for one batch size.
#[derive(Debug)]
pub(super) struct Network<S> {
    shape: Shape,
    tiles: Tiles,
    convolution: Layer<S>,
    hidden: Layer<S>,
    output: Layer<S>,
    patches: Buffer<S>,
    features: Activation<S>,
    hidden_units: Activation<S>,
    logits: Activation<S>,
}

/// The outputs of a layer and their gradient.
#[derive(Debug)]
struct Activation<S> {
    values: Buffer<S>,
    gradient: Buffer<S>,
}

impl<S: Scalar> Activation<S> {
    fn new(ledger: &Ledger, batch_size: usize, units: usize) -> Result<Self, DemoError> {
        Ok(Self { values: ledger.buffer(&[batch_size, units])?, gradient: ledger.buffer(&[batch_size, units])? })
    }
}

impl<S: Scalar> Network<S> {
    /// Allocates the network with the initial weights of `seed`.
    pub(super) fn new(ledger: &Ledger, shape: Shape, batch_size: usize, seed: u64) -> Result<Self, DemoError> {
        // The largest buffer comes first, so that a batch far too large fails at once.
        let patches = ledger.buffer(&[batch_size, shape.patches(), shape.patch_values()])?;
        Ok(Self {
            shape,
            tiles: Tiles::new::<S>(ledger)?,
            convolution: Layer::new(ledger, shape.patch_values(), shape.channels, seed, 0)?,
            hidden: Layer::new(ledger, shape.features(), shape.hidden, seed, 1)?,
            output: Layer::new(ledger, shape.hidden, CLASSES, seed, 2)?,
            patches,
            features: Activation::new(ledger, batch_size, shape.features())?,
            hidden_units: Activation::new(ledger, batch_size, shape.hidden)?,
            logits: Activation::new(ledger, batch_size, CLASSES)?,
        })
    }

    /// Returns the mean loss of a batch.
    pub(super) fn forward(&mut self, batch: &Batch<S>) -> f64 {
        let tiles = &mut self.tiles;
        let (features, units) = (&mut self.features.values, &mut self.hidden_units.values);
        gather_patches(&self.shape, &batch.pixels, &mut self.patches);
        self.convolution.forward(tiles, &self.patches, true, features);
        self.hidden.forward(tiles, features, true, units);
        self.output.forward(tiles, units, false, &mut self.logits.values);
        cross_entropy(&self.logits.values, &batch.labels, &mut self.logits.gradient)
    }

    /// Computes all gradients of the latest loss.
    pub(super) fn backward(&mut self) {
        let tiles = &mut self.tiles;
        let (features, units) = (&mut self.features, &mut self.hidden_units);
        let logits = &self.logits.gradient;
        self.output.backward(tiles, &units.values, logits);
        self.output.backward_input(tiles, logits, &units.values, &mut units.gradient);
        self.hidden.backward(tiles, &features.values, &units.gradient);
        self.hidden.backward_input(tiles, &units.gradient, &features.values, &mut features.gradient);
        self.convolution.backward(tiles, &self.patches, &features.gradient);
    }

    /// Updates all parameters from their gradients.
    pub(super) fn update(&mut self, learning_rate: f32) {
        for layer in [&mut self.convolution, &mut self.hidden, &mut self.output] {
            layer.update(learning_rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH_SIZE: usize = 6;

    fn batch(ledger: &Ledger) -> Batch<f32> {
        let mut batch = Batch::new(ledger, &Shape::TINY, BATCH_SIZE).unwrap();
        for (index, pixel) in batch.pixels.iter_mut().enumerate() {
            *pixel = (index * 37 % 101) as f32 / 50.0 - 1.0;
        }
        for (label, class) in batch.labels.iter_mut().zip(0..) {
            *label = class;
        }
        batch
    }

    fn check(layer: fn(&mut Network<f32>) -> &mut Layer<f32>) {
        let ledger = Ledger::new(None);
        let batch = batch(&ledger);
        let mut network = Network::<f32>::new(&ledger, Shape::TINY, BATCH_SIZE, 7).unwrap();
        network.forward(&batch);
        network.backward();
        let gradient = layer(&mut network).gradient().to_vec();
        let largest =
            (0..gradient.len()).max_by(|&left, &right| gradient[left].abs().total_cmp(&gradient[right].abs())).unwrap();
        let mut loss_at = |shift: f32| {
            layer(&mut network).weights_mut()[largest] += shift;
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
