//! What trains, on whatever device and in whatever precision, and what a step of it says.

use std::time::Duration;

use super::error::DemoError;

/// What one training step did and how long its parts took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DemoStep {
    /// The samples in the batch.
    pub samples: u64,
    /// The mean cross-entropy of the batch before the update.
    pub loss: f64,
    /// The wait for the batch; without workers, the loading itself. On a GPU, what its work did not hide of it.
    pub data_wait: Duration,
    /// The computation of the loss.
    pub forward: Duration,
    /// The computation of the gradients.
    pub backward: Duration,
    /// The update of all parameters.
    pub update: Duration,
}

/// A training of any precision.
pub(super) trait Engine: Send {
    /// Trains one batch.
    fn step(&mut self) -> Result<DemoStep, DemoError>;
}
