//! CUDA by cudarc: the driver's devices, cuBLASLt's matrix products, and the unsafe calls that ceilings need.
//!
//! cudarc panics if a library or a function is missing. So [`devices`] looks for the driver and its version first, and
//! [`find_blas`] looks for cuBLASLt. The parts that need a GPU have not run on one yet.

mod blas;
mod device;
mod error;
mod library;
mod work;

pub(crate) use blas::SquareProduct;
pub(crate) use device::{DeviceFacts, devices, version};
pub use error::CudaError;
pub(crate) use library::find_blas;
pub(crate) use work::{EmptyKernel, pinned, reach};
