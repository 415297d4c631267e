//! The training on a GPU: products of matrices by cuBLASLt, the rest by kernels that NVRTC compiles at the start.
//!
//! Sizes, initial parameters, batches and storage are those of the training on the host, so the losses there are the
//! reference for those here. The part that needs a GPU, `cuda.rs`, has not run on one yet. The kernels and the order in
//! which they are started are tested on the host, if there is a C compiler.
//!
//! There are two copies of a batch. While the device computes one, the workers' next batch is written to pinned memory
//! and copied on a stream of its own.

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

/// Makes a training on a GPU. Its memory is booked in the first ledger, that of the loaders in the second.
pub(super) fn training<S: Scalar>(
    device: CudaDevice,
    ledgers: (&Ledger, &Ledger),
    data_set: &DataSet,
    options: &DemoOptions,
) -> Result<Box<dyn Engine>, DemoError> {
    Ok(Box::new(training::DeviceTraining::<S, _>::new(device, ledgers, data_set, options)?))
}
