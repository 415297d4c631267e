//! From the steps that a job tells to its throughput with an interval, and how long that takes.
//!
//! Start with [`throughput`]; `window` keeps what was told, `patience` decides when it is enough.

mod observation;
pub(super) mod patience;
pub(super) mod printed;
mod rate;
pub mod stats;
pub(super) mod throughput;
pub(super) mod window;

pub use rate::{Rate, RateUnit, RateUnitError};
