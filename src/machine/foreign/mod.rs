//! Foreign interfaces: the only place with `unsafe`. What it gives to the rest of this crate is safe to call, provided that
//! kernels are started with their own arguments, which drivers before CUDA 12.4 do not let anybody check; so it is not public.
//!
//! Libraries are found at run time; where one is absent, broken or too old, the call that needs it says so.
#![expect(unsafe_code, reason = "drivers, their libraries and a few calls of the kernel are not safe by themselves")]

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod namespaces;
pub(crate) mod nvml;
