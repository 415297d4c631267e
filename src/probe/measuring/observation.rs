//! What is kept of a step.

use crate::probe::stats::Work;

/// One step, or neighbouring ones together.
#[derive(Debug, Clone, Copy)]
pub(in crate::probe) struct Observation {
    /// When it ended, in seconds since the probe began.
    pub(in crate::probe) at: f64,
    /// What was done, in the unit of the throughput without the "per second", and how long it took.
    pub(in crate::probe) work: Work,
    /// How much of that it waited for its data, in seconds; none where it does not say.
    pub(in crate::probe) waited: f64,
    /// What else happened in it, as a place in [`Window::kinds`].
    pub(in crate::probe) mark: Option<usize>,
    /// Steps that it stands for.
    pub(in crate::probe) steps: u64,
}
