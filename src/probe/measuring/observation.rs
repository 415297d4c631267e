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
    /// What came before the step.
    pub(in crate::probe) before: Before,
    /// The number of steps in this observation.
    pub(in crate::probe) steps: u64,
}

/// What lies between two steps.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::probe) struct Before {
    /// True if an epoch ended, whatever the mark of the step.
    pub(in crate::probe) ends_epoch: bool,
    /// The seconds of evaluation.
    pub(in crate::probe) evaluation: f64,
    /// The seconds in which the process was held and did not train, and those of a step whose begin is not known.
    pub(in crate::probe) held: f64,
    /// The work of such a step.
    pub(in crate::probe) skipped: f64,
    /// The work of such a step behind the end of an epoch. Its seconds are not in `held`.
    pub(in crate::probe) behind_end: f64,
}
