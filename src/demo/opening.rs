//! Chooses between a GPU and the CPU for a job.

use super::choice::DeviceChoice;
use super::data_set::DataSet;
use super::engine::Engine;
use super::error::DemoError;
use super::memory::Ledger;
use super::options::DemoOptions;

/// A training that is ready on a GPU.
pub(super) struct OnGpu {
    pub(super) engine: Box<dyn Engine>,
    /// The account of the GPU's memory.
    pub(super) ledger: Ledger,
    /// The GPU's model.
    pub(super) name: String,
}

/// The result of the choice.
pub(super) enum Opened {
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only the training on a GPU asks for it"))]
    Gpu(OnGpu),
    /// The CPU, with a reason if a GPU exists but is not used.
    Cpu(Option<String>),
}

/// Makes a training on the GPU, if the options ask for it and it is possible. Its loaders' memory is booked on the host.
///
/// # Errors
///
/// The errors of the job itself, such as too little memory. For `DeviceChoice::Gpu`, a missing GPU is also an error.
pub(super) fn open(options: &DemoOptions, data_set: &DataSet, host: &Ledger) -> Result<Opened, DemoError> {
    match options.device {
        DeviceChoice::Cpu => Ok(Opened::Cpu(None)),
        choice => gpu::open(options, data_set, host, choice),
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use std::fs;

    use half::{bf16, f16};

    use super::super::gpu::{CudaDevice, training};
    use super::super::precision::Precision;
    use super::super::scalar::Scalar;
    use super::super::tf32::Tf32;
    use super::{DataSet, DemoError, DemoOptions, DeviceChoice, Ledger, OnGpu, Opened};
    use crate::machine::cuda::CudaError;
    use crate::model::Precision as Format;

    pub(super) fn open(
        options: &DemoOptions,
        data_set: &DataSet,
        host: &Ledger,
        choice: DeviceChoice,
    ) -> Result<Opened, DemoError> {
        let train = match options.precision {
            Precision::F32 => train::<f32>,
            Precision::Tf32 => train::<Tf32>,
            Precision::Bf16 => train::<bf16>,
            Precision::F16 => train::<f16>,
        };
        match train(options, data_set, host) {
            Ok(training) => training.map(Opened::Gpu),
            Err(unusable) if choice == DeviceChoice::Auto => {
                Ok(Opened::Cpu(is_there().then(|| DemoError::from(unusable).to_string())))
            }
            Err(unusable) => Err(unusable.into()),
        }
    }

    /// Makes the training. The outer error means that the GPU cannot be used, the inner error that the job failed on it.
    fn train<S: Scalar>(
        options: &DemoOptions,
        data_set: &DataSet,
        host: &Ledger,
    ) -> Result<Result<OnGpu, DemoError>, CudaError> {
        let format = format(options.precision);
        if !format.is_in_hardware(CudaDevice::facts()?.compute_capability) {
            return Ok(Err(DemoError::InvalidOption {
                option: "precision",
                value: format!("{} on this GPU", options.precision),
                allowed: "f32 or f16",
            }));
        }
        match CudaDevice::open(S::STORAGE, format) {
            Ok(device) => Ok(train_on::<S>(device, options, data_set, host)),
            // If other programs have filled the GPU, it still counts as usable.
            Err(error) if error.is_out_of_memory() => Ok(Err(error.into())),
            Err(error) => Err(error),
        }
    }

    fn train_on<S: Scalar>(
        device: CudaDevice,
        options: &DemoOptions,
        data_set: &DataSet,
        host: &Ledger,
    ) -> Result<OnGpu, DemoError> {
        let limits = [options.memory_limit_bytes, Some(device.free_bytes()?)];
        let ledger = Ledger::new(limits.into_iter().flatten().min());
        let name = device.name().to_owned();
        let engine = training::<S>(device, (&ledger, host), data_set, options)?;
        Ok(OnGpu { engine, ledger, name })
    }

    fn format(precision: Precision) -> Format {
        match precision {
            Precision::F32 => Format::Fp32,
            Precision::Tf32 => Format::Tf32,
            Precision::Bf16 => Format::Bf16,
            Precision::F16 => Format::Fp16,
        }
    }

    /// Returns true if the kernel module or the driver shows a GPU, used or unused.
    fn is_there() -> bool {
        let listed = fs::read_dir("/proc/driver/nvidia/gpus").is_ok_and(|mut entries| entries.next().is_some());
        listed && std::env::var_os("CUDA_VISIBLE_DEVICES").is_none_or(|visible| !visible.is_empty())
            || CudaDevice::facts().is_ok()
    }
}

#[cfg(not(feature = "cuda"))]
mod gpu {
    use super::{DataSet, DemoError, DemoOptions, DeviceChoice, Ledger, Opened};

    pub(super) fn open(
        _options: &DemoOptions,
        _data_set: &DataSet,
        _host: &Ledger,
        choice: DeviceChoice,
    ) -> Result<Opened, DemoError> {
        match choice {
            DeviceChoice::Gpu => Err(DemoError::Device { reason: "this gputune was built without `cuda`".to_owned() }),
            _ => Ok(Opened::Cpu(None)),
        }
    }
}
