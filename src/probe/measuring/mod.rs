//! Turns the steps that a job reports into a throughput with an interval, and decides how long that takes.
//!
//! Start with [`throughput`]; `window` keeps the observations, `patience` decides when there are enough.

pub(super) mod patience;
pub(super) mod printed;
mod running_mean;
#[cfg(test)]
mod simulations;
pub mod stats;
pub(super) mod throughput;
pub(super) mod window;
