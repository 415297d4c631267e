//! Reads from NVIDIA's management library (NVML) what GPUs do while a probe runs.
//!
//! The library comes with the driver and is opened at run time. Nothing is ever set on a device. Each number is
//! optional: if a device, a driver or a permission does not provide it, it is absent, with the reason. All calls are
//! made in a thread of their own, since a call may hang as long as the driver does; whoever waits for that thread gives
//! up after a while.
//!
//! It has not run on a GPU yet: the tests use a stand-in for the library.

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
