//! Turns the steps that a job reports into a throughput with an interval, and decides how long that takes.
//!
//! Start with [`throughput`]; `window` keeps the observations, `patience` decides when there are enough.

pub(super) mod observation;
pub(super) mod patience;
pub(super) mod printed;
mod rate;
pub mod stats;
pub(super) mod throughput;
mod trend;
pub(super) mod window;

pub(in crate::probe) use rate::seconds_in;
pub use rate::{Rate, RateUnit, RateUnitError};
