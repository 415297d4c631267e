//! One array of parameters with its gradient and momentum, and their update.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::error::DemoError;
use super::memory::{Buffer, Ledger};
use super::scalar::Scalar;

/// The share of each step that is kept in the next step: the usual momentum.
const MOMENTUM: f32 = 0.9;
/// A bound on gradients, so that one bad batch, or an overflow of a half precision, does not ruin the parameters.
const LARGEST_GRADIENT: f32 = 1.0;
const PIECE: usize = 1024;

/// An array of parameters that are trained in the same way.
#[derive(Debug)]
pub(super) struct Parameters<S> {
    /// The parameters themselves.
    pub(super) values: Buffer<S>,
    /// The derivative of the loss, times the loss scale of the type.
    pub(super) gradient: Buffer<S>,
    // Also multiplied by the loss scale, because the plain momentum would underflow.
    momentum: Buffer<S>,
}

impl<S: Scalar> Parameters<S> {
    /// Allocates parameters that are zero.
    pub(super) fn zeros(ledger: &Ledger, sizes: &[usize]) -> Result<Self, DemoError> {
        Ok(Self { values: ledger.buffer(sizes)?, gradient: ledger.buffer(sizes)?, momentum: ledger.buffer(sizes)? })
    }

    /// Spreads the parameters evenly between `-bound` and `bound`.
    pub(super) fn randomize(&mut self, seed: u64, stream: u64, bound: f32) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        let mut piece = [0.0; PIECE];
        for stored in self.values.chunks_mut(PIECE) {
            let piece = &mut piece[..stored.len()];
            for value in piece.iter_mut() {
                *value = (random.random::<f32>() * 2.0 - 1.0) * bound;
            }
            S::store(piece, stored);
        }
    }

    /// Takes one step against the gradient.
    pub(super) fn update(&mut self, learning_rate: f32) {
        if let (Some(values), Some(momentum), Some(gradient)) =
            (S::as_f32_mut(&mut self.values), S::as_f32_mut(&mut self.momentum), S::as_f32(&self.gradient))
        {
            descend::<S>(learning_rate, values, momentum, gradient);
            return;
        }
        let mut pieces = [[0.0; PIECE]; 3];
        let stored = self.values.chunks_mut(PIECE);
        let stored = stored.zip(self.momentum.chunks_mut(PIECE));
        for ((values, momentum), gradient) in stored.zip(self.gradient.chunks(PIECE)) {
            let pieces = pieces.each_mut().map(|piece| &mut piece[..values.len()]);
            let [new_values, new_momentum, loaded_gradient] = pieces;
            S::load(values, new_values);
            S::load(momentum, new_momentum);
            S::load(gradient, loaded_gradient);
            descend::<S>(learning_rate, new_values, new_momentum, loaded_gradient);
            S::store(new_values, values);
            S::store(new_momentum, momentum);
        }
    }
}

fn descend<S: Scalar>(learning_rate: f32, values: &mut [f32], momentum: &mut [f32], gradient: &[f32]) {
    let rate = learning_rate / S::LOSS_SCALE;
    let largest = LARGEST_GRADIENT * S::LOSS_SCALE;
    for ((value, momentum), gradient) in values.iter_mut().zip(momentum).zip(gradient) {
        *momentum = MOMENTUM * *momentum + gradient.max(-largest).min(largest);
        *value -= rate * *momentum;
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn two_steps<S: Scalar>() -> f32 {
        let mut parameters = Parameters::<S>::zeros(&Ledger::new(None), &[PIECE + 1]).unwrap();
        let gradient = vec![0.25 * S::LOSS_SCALE; PIECE + 1];
        S::store(&gradient, &mut parameters.gradient);
        parameters.update(0.5);
        parameters.update(0.5);
        let mut value = [0.0];
        S::load(&parameters.values[PIECE..], &mut value);
        value[0]
    }

    #[test]
    fn momentum_carries_over() {
        // 0.5 * 0.25, then 0.5 * (0.25 + 0.9 * 0.25).
        assert!((two_steps::<f32>() + 0.3625).abs() < 1e-6);
        assert!((two_steps::<f16>() + 0.3625).abs() < 1e-3);
    }

    #[test]
    fn an_overflowed_gradient_is_cut() {
        let mut parameters = Parameters::<f16>::zeros(&Ledger::new(None), &[1]).unwrap();
        parameters.gradient[0] = f16::INFINITY;
        parameters.update(0.5);
        assert_eq!(parameters.values[0].to_f32(), -0.5);
    }
}
