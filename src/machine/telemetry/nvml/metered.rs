//! The result of watching a probe.

use std::time::{Duration, Instant};

use crate::model::GpuUse;

/// The measured time span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The end of warm-up.
    pub begin: Instant,
    /// The end of the last step.
    pub end: Instant,
}

impl Window {
    pub(super) fn length(&self) -> Duration {
        self.end.saturating_duration_since(self.begin)
    }
}

/// The meter's result for a probe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metered {
    /// Each GPU that the probe used.
    pub gpus: Vec<GpuUse>,
    /// Disturbances from outside, one sentence each.
    pub disturbances: Vec<String>,
    /// Xid errors of all GPUs that it might have used, such as `Xid 79 of GPU 0`.
    pub xids: Vec<String>,
}
