//! A fully connected layer on a device. Its training is the same as that in the host's `Layer`.

use super::super::error::DemoError;
use super::super::parameters::{LARGEST_GRADIENT, MOMENTUM, Parameters};
use super::super::scalar::Scalar;
use super::account::{Account, Held};
use super::device::{Argument, Device, Kernel};
use crate::machine::cuda::ProductShape;

/// The most parts of a column sum, so that a device has enough threads if a matrix has few columns. A round number.
const MOST_PARTS: usize = 1024;

/// Parameters on a device with their gradient and momentum.
struct Trained<D: Device> {
    values: Held<D>,
    gradient: Held<D>,
    momentum: Held<D>,
    count: usize,
}

impl<D: Device> Trained<D> {
    fn new<S: Scalar>(account: &Account<'_, D>, initial: &Parameters<S>) -> Result<Self, DemoError> {
        let count = initial.values.len();
        let held = || account.memory(&[count, S::BYTES]);
        let made = Self { values: held()?, gradient: held()?, momentum: held()?, count };
        let mut bytes = vec![0; count * S::BYTES];
        S::write_bytes(&initial.values, &mut bytes);
        account.device().write(&bytes, &made.values)?;
        Ok(made)
    }

    fn update<S: Scalar>(&self, device: &D, learning_rate: f32) -> Result<(), DemoError> {
        let arguments = [
            Argument::Memory(&*self.values),
            Argument::Memory(&*self.momentum),
            Argument::Memory(&*self.gradient),
            Argument::U64(self.count),
            Argument::F32(learning_rate / S::LOSS_SCALE),
            Argument::F32(LARGEST_GRADIENT * S::LOSS_SCALE),
            Argument::F32(MOMENTUM),
        ];
        device.launch(Kernel::Descend, self.count, &arguments)
    }
}

/// A matrix of weights and a bias per output, for a fixed number of rows.
pub(super) struct DeviceLayer<D: Device> {
    rows: usize,
    inputs: usize,
    outputs: usize,
    weights: Trained<D>,
    biases: Trained<D>,
    sums: Held<D>,
    forward: D::Product,
    weight_gradient: D::Product,
    input_gradient: D::Product,
}

impl<D: Device> DeviceLayer<D> {
    /// Allocates the layer with the initial parameters of the host's layer.
    pub(super) fn new<S: Scalar>(
        account: &Account<'_, D>,
        rows: usize,
        weights: &Parameters<S>,
        biases: &Parameters<S>,
    ) -> Result<Self, DemoError> {
        let outputs = biases.values.len();
        let inputs = weights.values.len() / outputs;
        let product = |rows, columns, inner, left_transposed, right_transposed| {
            account.device().product(ProductShape { rows, columns, inner, left_transposed, right_transposed })
        };
        Ok(Self {
            rows,
            inputs,
            outputs,
            weights: Trained::new(account, weights)?,
            biases: Trained::new(account, biases)?,
            sums: account.memory(&[parts(rows), outputs, size_of::<f32>()])?,
            forward: product(rows, outputs, inputs, false, false)?,
            weight_gradient: product(inputs, outputs, rows, true, false)?,
            input_gradient: product(rows, inputs, outputs, false, true)?,
        })
    }

    /// Computes the outputs of every row of inputs.
    pub(super) fn forward(
        &self,
        device: &D,
        input: &D::Memory,
        is_rectified: bool,
        output: &D::Memory,
    ) -> Result<(), DemoError> {
        let count = self.rows * self.outputs;
        let spread = [
            Argument::Memory(&*self.biases.values),
            Argument::Memory(output),
            Argument::U64(count),
            Argument::U32(self.outputs),
        ];
        device.launch(Kernel::SpreadBiases, count, &spread)?;
        device.multiply(&self.forward, (input, &self.weights.values), output, true)?;
        if is_rectified {
            device.launch(Kernel::Rectify, count, &[Argument::Memory(output), Argument::U64(count)])?;
        }
        Ok(())
    }

    /// Computes the gradients of the weights and biases.
    pub(super) fn backward(&self, device: &D, input: &D::Memory, output_gradient: &D::Memory) -> Result<(), DemoError> {
        device.multiply(&self.weight_gradient, (input, output_gradient), &self.weights.gradient, false)?;
        let parts = parts(self.rows);
        let partly = [
            Argument::Memory(output_gradient),
            Argument::Memory(&*self.sums),
            Argument::U64(self.rows),
            Argument::U32(self.outputs),
            Argument::U32(parts),
        ];
        device.launch(Kernel::SumRowsPartly, parts * self.outputs, &partly)?;
        let whole = [
            Argument::Memory(&*self.sums),
            Argument::Memory(&*self.biases.gradient),
            Argument::U32(self.outputs),
            Argument::U32(parts),
        ];
        device.launch(Kernel::SumParts, self.outputs, &whole)
    }

    /// Computes the gradient of the inputs. `input` has the inputs as outputs of a rectified layer.
    pub(super) fn backward_input(
        &self,
        device: &D,
        output_gradient: &D::Memory,
        input: &D::Memory,
        input_gradient: &D::Memory,
    ) -> Result<(), DemoError> {
        device.multiply(&self.input_gradient, (output_gradient, &self.weights.values), input_gradient, false)?;
        let count = self.rows * self.inputs;
        let mask = [Argument::Memory(input_gradient), Argument::Memory(input), Argument::U64(count)];
        device.launch(Kernel::MaskRectified, count, &mask)
    }

    /// Updates the weights and biases from their gradients.
    pub(super) fn update<S: Scalar>(&self, device: &D, learning_rate: f32) -> Result<(), DemoError> {
        self.weights.update::<S>(device, learning_rate)?;
        self.biases.update::<S>(device, learning_rate)
    }
}

fn parts(rows: usize) -> usize {
    rows.clamp(1, MOST_PARTS)
}
