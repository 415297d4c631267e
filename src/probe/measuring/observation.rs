//! The record of a step.

use crate::probe::stats::Work;

/// One step, or several consecutive steps together.
#[derive(Debug, Clone, Copy)]
pub(in crate::probe) struct Observation {
    /// The end of the step, in seconds since the probe began.
    pub(in crate::probe) at: f64,
    /// The amount of work, in the unit of the throughput without the "per second", and its duration.
    pub(in crate::probe) work: Work,
    /// The seconds of that time in which the step waited for its data; zero if not reported.
    pub(in crate::probe) waited: f64,
    /// The mark of the step, as an index into the window's `kinds`.
    pub(in crate::probe) mark: Option<usize>,
    /// The number of steps in this observation.
    pub(in crate::probe) steps: u64,
}
