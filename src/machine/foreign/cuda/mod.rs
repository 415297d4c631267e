//! CUDA: the driver's devices, memory, streams and kernels, cuBLASLt's matrix products, and NVRTC's compiler.
//!
//! `cudarc` provides types and constants. Functions are looked up one by one when they are first needed, for three reasons.
//! cudarc's own functions panic if the library or symbol is absent. Its enums cannot hold the codes of later drivers. It
//! cannot choose between several versions of a library.
//!
//! The parts that need a GPU have not run on one yet. Lookup, errors and the compiler are tested without a GPU.

mod blas;
mod blas_table;
mod compiler;
mod device;
mod driver;
mod error;
mod gpu;
mod kernel;
mod library;
mod memory;
mod stream;

pub(crate) use blas::{Blas, Element, MatrixProduct, ProductShape};
pub(crate) use compiler::{Compiler, Program};
pub(crate) use device::{DeviceFacts, Driver};
pub use error::CudaError;
pub(crate) use gpu::Gpu;
pub(crate) use kernel::{Argument, Grid, Kernel, Module};
pub(crate) use memory::{Buffer, Part, Pinned, Plain};
pub(crate) use stream::{Event, Stream};
