//! Reads the activity of GPUs during a probe from NVIDIA's management library (NVML).
//!
//! The library comes with the driver and is opened at run time. No setting of a device is ever changed. Each number is
//! optional: if a device, a driver or a permission does not provide it, it is absent, with the reason. A separate thread
//! makes all calls, since a call may hang as long as the driver does; waiting for that thread has a time-out.
//!
//! It ran on an H100 with driver 580 (`gpu/results/h100`). The tests use a stand-in for the library.

mod ask;
mod changes;
mod evaluate;
mod facts;
mod gpm;
mod list;
mod meter;
mod metered;
mod owners;
mod samples;
mod ticks;
mod visible;
mod watched;
mod worker;

pub use ask::NoNvml;
pub use list::GpuIdentity;
pub use meter::GpuMeter;
pub use metered::{Metered, Window};
pub use visible::Visible;
