//! The record of a step.

use crate::probe::stats::Work;

/// One step, or several consecutive ones together.
#[derive(Debug, Clone, Copy)]
pub(in crate::probe) struct Observation {
    /// When it ended, in seconds since the probe began.
    pub(in crate::probe) at: f64,
    /// The amount of work, in the unit of the throughput without the "per second", and how long it took.
    pub(in crate::probe) work: Work,
    /// How much of that time the step waited for its data, in seconds; zero where it does not report it.
    pub(in crate::probe) waited: f64,
    /// The mark of the step, as a place in the window's list of `kinds`.
    pub(in crate::probe) mark: Option<usize>,
    /// Steps that it stands for.
    pub(in crate::probe) steps: u64,
}
