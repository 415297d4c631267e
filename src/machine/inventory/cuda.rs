//! Adds facts from CUDA's driver, which shows the devices that `CUDA_VISIBLE_DEVICES` leaves.

use super::{Library, Machine};
use crate::machine::foreign::cuda::{self, CudaError, DeviceFacts};
use crate::machine::telemetry::{GpuFacts, Mig, VISIBLE_GPUS};

/// Adds the driver's version, cuBLASLt, and the facts about GPUs that only it knows.
pub(super) fn add(machine: &mut Machine) {
    add_devices(machine);
    // Without a device cuBLASLt is useless, and it loads slowly.
    if machine.libraries.iter().any(|library| library.name == DRIVER && library.absent.is_some()) {
        return;
    }
    let found = cuda::version().and_then(|(major, _)| cuda::find_blas(major));
    machine.libraries.push(library("libcublasLt", found.err().as_ref()));
}

const DRIVER: &str = "libcuda.so.1";

/// Adds the driver's version and the devices that it shows.
pub(super) fn add_devices(machine: &mut Machine) {
    machine.cuda = cuda::version().ok().map(|(major, minor)| format!("{major}.{minor}"));
    let devices = cuda::devices();
    machine.libraries.push(library(DRIVER, devices.as_ref().err()));
    if std::env::var_os(VISIBLE_GPUS).is_some() {
        hide(&mut machine.gpus, &devices);
    }
    for device in devices.unwrap_or_default() {
        let known = machine.gpus.iter_mut().find(|gpu| is_same(gpu, &device));
        match known {
            Some(gpu) => complete(gpu, &device),
            None => machine.gpus.push(alone(&device)),
        }
    }
}

/// Marks the GPUs that CUDA does not show as hidden, if CUDA answers: it interprets the variable in its own way. It shows a
/// program only one MIG instance, even if the variable leaves several.
fn hide(gpus: &mut [GpuFacts], devices: &Result<Vec<DeviceFacts>, CudaError>) {
    let shown = match devices {
        Ok(devices) => devices.as_slice(),
        Err(CudaError::NoDevice) => &[],
        Err(_) => return,
    };
    let is_known = |device: &DeviceFacts| gpus.iter().any(|gpu| is_same(gpu, device));
    if !shown.iter().all(is_known) {
        return;
    }
    let is_instance = |gpu: &GpuFacts| matches!(gpu.mig, Some(Mig::InstanceOf(_)));
    for gpu in gpus.iter_mut().filter(|gpu| shown.is_empty() || !is_instance(gpu)) {
        gpu.is_visible = false;
    }
}

fn library(name: &'static str, error: Option<&CudaError>) -> Library {
    let cure = error.and_then(CudaError::cure).map(str::to_owned);
    Library { name, absent: error.map(ToString::to_string), cure }
}

/// Compares identities without their prefix: CUDA does not mark an identity as a GPU's or an instance's.
fn is_same(gpu: &GpuFacts, device: &DeviceFacts) -> bool {
    let plain = |uuid: &str| uuid.trim_start_matches("GPU-").trim_start_matches("MIG-").to_owned();
    gpu.uuid.as_deref().is_some_and(|uuid| plain(uuid) == plain(&device.uuid))
}

fn complete(gpu: &mut GpuFacts, device: &DeviceFacts) {
    gpu.is_visible = true;
    gpu.compute_capability = Some(device.compute_capability);
    gpu.multiprocessors = Some(device.multiprocessors).filter(|&count| count > 0);
    gpu.memory_bytes = gpu.memory_bytes.or(Some(device.memory_bytes));
}

fn alone(device: &DeviceFacts) -> GpuFacts {
    let mut gpu = GpuFacts {
        index: u32::try_from(device.ordinal).ok(),
        uuid: Some(device.uuid.clone()),
        name: device.name.clone(),
        ..GpuFacts::default()
    };
    complete(&mut gpu, device);
    gpu
}
