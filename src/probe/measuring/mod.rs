//! Turns the steps that a job reports into a throughput with an interval, and decides how long that takes.
//!
//! Start with [`throughput`]; `window` keeps the observations, `patience` decides when there are enough.

mod observation;
pub(super) mod patience;
pub(super) mod printed;
mod rate;
pub mod stats;
mod step_changes;
pub(super) mod throughput;
pub(super) mod window;

pub(in crate::probe) use rate::seconds_in;
pub use rate::{Rate, RateUnit, RateUnitError};
