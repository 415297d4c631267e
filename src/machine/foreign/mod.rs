//! Foreign interfaces: the only module with `unsafe`. Its interface is safe.
//!
//! Libraries are found at run time; if one is absent, broken or too old, the call that needs it returns an error.
#![expect(unsafe_code, reason = "drivers, their libraries and a few system calls have no safe interface")]

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod namespaces;
pub(crate) mod nvml;
