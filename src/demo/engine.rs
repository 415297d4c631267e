//! A training in any precision, and the report of its steps.

use std::time::Duration;

use super::error::DemoError;

/// The results of one training step, and the duration of its parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DemoStep {
    /// The samples in the batch.
    pub samples: u64,
    /// The mean cross-entropy of the batch before the update.
    pub loss: f64,
    /// The wait for the batch. Without workers, the time to load the batch.
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
