//! Foreign interfaces: the only place with `unsafe`. What it gives to the rest is safe to call.
//!
//! Libraries are found at run time; where one is absent, broken or too old, the call that needs it says so.
#![expect(unsafe_code, reason = "drivers and their libraries are called through the C interface")]

#[cfg(feature = "cuda")]
pub mod cuda;
pub(crate) mod nvml;
