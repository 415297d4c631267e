//! The training on a GPU: cuBLASLt multiplies matrices, and kernels that NVRTC compiles at the start do the rest.
//!
//! Sizes, initial parameters, batches and storage are the same as in the training on the host, so the host's losses are the
//! reference. The part that needs a GPU, `cuda.rs`, has not run on a GPU yet. The kernels and their order are tested on the host,
//! if it has a C compiler.
//!
//! A batch has two slots. While the device computes one batch, the workers' next batch is written to pinned memory and copied on a
//! separate stream.

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

/// Makes a training on a GPU. The first ledger books GPU memory, the second ledger books the loaders' memory.
pub(super) fn training<S: Scalar>(
    device: CudaDevice,
    ledgers: (&Ledger, &Ledger),
    data_set: &DataSet,
    options: &DemoOptions,
) -> Result<Box<dyn Engine>, DemoError> {
    Ok(Box::new(training::DeviceTraining::<S, _>::new(device, ledgers, data_set, options)?))
}
