//! The training on a GPU: products of matrices by cuBLASLt, the rest by kernels that NVRTC compiles at the start.
//!
//! Sizes, initial parameters, batches and the way of storing numbers are those of the training on the host, so its losses
//! are the measure of what is computed here. What needs a GPU, `cuda.rs`, has not run on one yet; the kernels and the
//! order in which they are started run in tests on the host, where a C compiler is there.
//!
//! Two copies of a batch are under way: while the device computes one, the workers' next is written to pinned memory and
//! copied on a stream of its own.

mod account;
#[cfg(test)]
mod agreement;
mod cuda;
mod device;
#[cfg(test)]
mod host_device;
mod layer;
mod network;
mod source;
mod training;

pub(super) use cuda::CudaDevice;

use super::data_set::DataSet;
use super::engine::Engine;
use super::error::DemoError;
use super::memory::Ledger;
use super::options::DemoOptions;
use super::scalar::Scalar;

/// Makes a training on a GPU; its memory is booked in the first ledger, that of the loaders in the second.
pub(super) fn training<S: Scalar>(
    device: CudaDevice,
    ledgers: (&Ledger, &Ledger),
    data_set: &DataSet,
    options: &DemoOptions,
) -> Result<Box<dyn Engine>, DemoError> {
    Ok(Box::new(training::DeviceTraining::<S, _>::new(device, ledgers, data_set, options)?))
}
