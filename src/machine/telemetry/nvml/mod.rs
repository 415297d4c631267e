//! Reads the activity of GPUs during a probe from NVIDIA's management library (NVML).
//!
//! The library comes with the driver and is opened at run time. No setting of a device is ever changed. Each number is
//! optional: if a device, a driver or a permission does not provide it, it is absent, with the reason. A separate
//! thread makes all calls, since a call may hang as long as the driver does; waiting for that thread has a time-out.
//!
//! This module has been run on an H100 with driver 580 (`gpu/results/h100`). The tests use a stand-in for the library.

mod ask;
mod changes;
mod evaluate;
mod facts;
mod gpm;
mod list;
mod meter;
mod owners;
mod samples;
mod watched;
mod worker;

use std::time::{Duration, Instant};

use crate::model::GpuUse;

pub use ask::NoNvml;
pub use list::{GpuIdentity, Visible};
pub use meter::GpuMeter;

/// The measured time span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The end of warm-up.
    pub begin: Instant,
    /// The end of the last step.
    pub end: Instant,
}

impl Window {
    fn length(&self) -> Duration {
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
    /// Xid errors of all GPUs that the probe might have used, such as `Xid 79 of GPU 0`.
    pub xids: Vec<String>,
}
