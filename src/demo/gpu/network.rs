//! The network on a device: the same layers, sizes and initial parameters as the host's `Network`.

use super::super::error::DemoError;
use super::super::layer::initial_parameters;
use super::super::memory::Ledger;
use super::super::scalar::Scalar;
use super::super::shape::{CLASSES, COLOURS, Shape};
use super::account::{Account, Held};
use super::device::{Argument, Device, Kernel};
use super::layer::DeviceLayer;

/// The layers and everything between them for one batch size.
pub(super) struct DeviceNetwork<D: Device> {
    shape: Shape,
    batch_size: usize,
    convolution: DeviceLayer<D>,
    hidden: DeviceLayer<D>,
    output: DeviceLayer<D>,
    patches: Held<D>,
    features: Activation<D>,
    hidden_units: Activation<D>,
    logits: Activation<D>,
    losses: Held<D>,
}

/// The outputs of a layer and their gradient.
struct Activation<D: Device> {
    values: Held<D>,
    gradient: Held<D>,
}

impl<D: Device> Activation<D> {
    fn new<S: Scalar>(account: &Account<'_, D>, batch_size: usize, units: usize) -> Result<Self, DemoError> {
        let held = || account.memory(&[batch_size, units, S::BYTES]);
        Ok(Self { values: held()?, gradient: held()? })
    }
}

impl<D: Device> DeviceNetwork<D> {
    /// Allocates the network with the initial weights of `seed`.
    pub(super) fn new<S: Scalar>(
        account: &Account<'_, D>,
        shape: Shape,
        batch_size: usize,
        seed: u64,
    ) -> Result<Self, DemoError> {
        // The largest buffer comes first, so that a batch far too large fails at once.
        let patches = account.memory(&[batch_size, shape.patches(), shape.patch_values(), S::BYTES])?;
        let features = Activation::new::<S>(account, batch_size, shape.features())?;
        let layer = |rows, inputs, outputs, stream| {
            let (weights, biases) = initial_parameters::<S>(&Ledger::new(None), inputs, outputs, seed, stream)?;
            DeviceLayer::new(account, rows, &weights, &biases)
        };
        Ok(Self {
            shape,
            batch_size,
            convolution: layer(batch_size * shape.patches(), shape.patch_values(), shape.channels, 0)?,
            hidden: layer(batch_size, shape.features(), shape.hidden, 1)?,
            output: layer(batch_size, shape.hidden, CLASSES, 2)?,
            patches,
            features,
            hidden_units: Activation::new::<S>(account, batch_size, shape.hidden)?,
            logits: Activation::new::<S>(account, batch_size, CLASSES)?,
            losses: account.memory(&[batch_size, size_of::<f32>()])?,
        })
    }

    /// Computes the loss of every sample and the gradient of their mean.
    pub(super) fn forward<S: Scalar>(
        &self,
        device: &D,
        (pixels, labels): (&D::Memory, &D::Memory),
    ) -> Result<(), DemoError> {
        let (features, units, logits) = (&self.features.values, &self.hidden_units.values, &self.logits.values);
        self.gather(device, pixels)?;
        self.convolution.forward(device, &self.patches, true, features)?;
        self.hidden.forward(device, features, true, units)?;
        self.output.forward(device, units, false, logits)?;
        #[expect(clippy::cast_precision_loss, reason = "as on the host")]
        let share = S::LOSS_SCALE / self.batch_size as f32;
        let arguments = [
            Argument::Memory(&**logits),
            Argument::Memory(labels),
            Argument::Memory(&*self.logits.gradient),
            Argument::Memory(&*self.losses),
            Argument::U64(self.batch_size),
            Argument::U32(CLASSES),
            Argument::F32(share),
        ];
        device.launch(Kernel::CrossEntropy, self.batch_size, &arguments)
    }

    fn gather(&self, device: &D, pixels: &D::Memory) -> Result<(), DemoError> {
        let Shape { crop_side_pixels, patch_side_pixels, patch_step_pixels, .. } = self.shape;
        let count = self.batch_size * self.shape.patches() * self.shape.patch_values();
        let arguments = [
            Argument::Memory(pixels),
            Argument::Memory(&*self.patches),
            Argument::U64(count),
            Argument::U32(crop_side_pixels),
            Argument::U32(patch_side_pixels),
            Argument::U32(patch_step_pixels),
            Argument::U32(COLOURS),
        ];
        device.launch(Kernel::GatherPatches, count, &arguments)
    }

    /// Computes all gradients of the latest loss.
    pub(super) fn backward(&self, device: &D) -> Result<(), DemoError> {
        let (features, units, logits) = (&self.features, &self.hidden_units, &self.logits.gradient);
        self.output.backward(device, &units.values, logits)?;
        self.output.backward_input(device, logits, &units.values, &units.gradient)?;
        self.hidden.backward(device, &features.values, &units.gradient)?;
        self.hidden.backward_input(device, &units.gradient, &features.values, &features.gradient)?;
        self.convolution.backward(device, &self.patches, &features.gradient)
    }

    /// Updates all parameters from their gradients.
    pub(super) fn update<S: Scalar>(&self, device: &D, learning_rate: f32) -> Result<(), DemoError> {
        for layer in [&self.convolution, &self.hidden, &self.output] {
            layer.update::<S>(device, learning_rate)?;
        }
        Ok(())
    }

    /// Waits for the end of the step, and returns the mean loss.
    pub(super) fn loss(&self, device: &D, losses: &mut [f32]) -> Result<f64, DemoError> {
        device.read(&self.losses, losses)?;
        #[expect(clippy::cast_precision_loss, reason = "a mean")]
        let samples = losses.len() as f64;
        Ok(losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / samples)
    }
}
