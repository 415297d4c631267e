//! A resource that grows while a job trains, and the time until its limit is reached.

use serde::{Deserialize, Serialize};

use super::quantity::{show_bytes, show_number, show_seconds};

/// A resource with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Memory of the processes of the job, in bytes.
    HostMemory,
    /// Memory that tensors hold on a device, in bytes.
    DeviceMemory,
    /// Open files of one process.
    OpenFiles,
}

/// The steady growth of a resource while a probe was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// The resource.
    pub resource: Resource,
    /// How much it grows in a second.
    pub per_second: f64,
    /// How much is left until the limit.
    pub left: f64,
}

impl Growth {
    /// Returns the seconds until the limit is reached.
    pub fn seconds_left(&self) -> f64 {
        self.left / self.per_second
    }

    /// Returns the growth and the limit in words.
    pub(super) fn words(&self, step_seconds: Option<f64>) -> String {
        let seconds = self.seconds_left();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "such casts saturate")]
        let bytes = |size: f64| show_bytes(size as u64);
        let amount = |size: f64| match self.resource {
            Resource::HostMemory | Resource::DeviceMemory => bytes(size),
            Resource::OpenFiles => show_number(size),
        };
        let full = || format!("the {} that are left are full", amount(self.left));
        let (what, limit) = match self.resource {
            Resource::HostMemory => ("host memory grows", full()),
            Resource::DeviceMemory => ("device memory grows", full()),
            Resource::OpenFiles => ("open files grow", format!("{} more reach the limit", amount(self.left))),
        };
        let of_step = step_seconds.map(|step| format!(" ({} a step)", amount(self.per_second * step)));
        let steps = step_seconds.map(|step| format!(" ({} steps)", show_number((seconds / step).floor())));
        let (of_step, steps) = (of_step.unwrap_or_default(), steps.unwrap_or_default());
        format!(
            "{what} by {} a second{of_step}: {limit} after {}{steps}",
            amount(self.per_second),
            show_seconds(seconds)
        )
    }
}
