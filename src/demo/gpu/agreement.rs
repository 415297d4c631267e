//! Compares the training on a device with the training on the host: the same batches must give the same losses.

use half::{bf16, f16};

use super::super::data_set::DataSet;
use super::super::engine::{DemoStep, Engine};
use super::super::error::DemoError;
use super::super::memory::Ledger;
use super::super::options::DemoOptions;
use super::super::precision::Precision;
use super::super::scalar::Scalar;
use super::super::scratch::ScratchFolder;
use super::super::shape::Shape;
use super::super::tf32::Tf32;
use super::super::trainer::Training;
use super::cuda::CudaDevice;
use super::device::Device;
use super::host_device::HostDevice;
use super::training::DeviceTraining;
use crate::model::Precision as Format;

const STEPS: usize = 12;

fn options(scratch: &ScratchFolder, precision: Precision) -> DemoOptions {
    DemoOptions {
        batch_size: 13,
        workers: 1,
        seed: 1,
        learning_rate: 0.01,
        precision,
        data_dir: scratch.path().to_path_buf(),
        ..DemoOptions::default()
    }
}

fn steps(engine: &mut dyn Engine) -> Vec<DemoStep> {
    (0..STEPS).map(|_| engine.step().unwrap()).collect()
}

fn on_device<S: Scalar, D: Device>(device: D, data_set: &DataSet, options: &DemoOptions) -> Vec<DemoStep> {
    let ledger = Ledger::new(None);
    steps(&mut DeviceTraining::<S, D>::new(device, (&ledger, &ledger), data_set, options).unwrap())
}

/// Checks that the losses of every step differ by at most `tolerance`.
fn check<S: Scalar>(precision: Precision, tolerance: f64) {
    let scratch = ScratchFolder::new(&format!("agreement-{precision}"));
    let options = options(&scratch, precision);
    let data_set = DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
    let Some(device) = HostDevice::start(scratch.path(), S::STORAGE) else {
        return;
    };
    let found = on_device::<S, _>(device, &data_set, &options);
    let wanted = steps(&mut Training::<S>::new(&Ledger::new(None), &data_set, &options).unwrap());
    for (number, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        assert_eq!(found.samples, wanted.samples);
        let difference = (found.loss - wanted.loss).abs();
        assert!(difference <= tolerance, "step {number} in {precision}: {} instead of {}", found.loss, wanted.loss);
    }
    let fallen = wanted[0].loss - found[STEPS - 1].loss;
    assert!(fallen > 0.3, "{precision}: the loss fell by {fallen}");
}

#[test]
fn a_device_trains_as_the_host_does_in_single_precision() {
    check::<f32>(Precision::F32, 2e-5);
}

#[test]
fn a_device_trains_as_the_host_does_in_the_half_precisions() {
    check::<bf16>(Precision::Bf16, 0.05);
    check::<f16>(Precision::F16, 0.01);
}

#[test]
fn a_device_without_memory_says_so_and_gives_back_what_it_had() {
    let scratch = ScratchFolder::new("device-memory");
    let options = options(&scratch, Precision::F32);
    let data_set = DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
    let Some(device) = HostDevice::start(scratch.path(), f32::STORAGE) else {
        return;
    };
    let (device_ledger, host_ledger) = (Ledger::new(None), Ledger::new(None));
    let training = DeviceTraining::<f32, _>::new(device, (&device_ledger, &host_ledger), &data_set, &options).unwrap();
    let peak_bytes = device_ledger.memory().peak_bytes;
    drop(training);
    assert_eq!((device_ledger.memory().in_use_bytes, host_ledger.memory().in_use_bytes), (0, 0));
    for (limit_bytes, fits) in [(peak_bytes, true), (peak_bytes - 1, false)] {
        let device = HostDevice::start(scratch.path(), f32::STORAGE).unwrap();
        let ledger = Ledger::new(Some(limit_bytes));
        let made = DeviceTraining::<f32, _>::new(device, (&ledger, &host_ledger), &data_set, &options);
        assert_eq!(made.is_ok(), fits);
        assert!(fits || matches!(made, Err(DemoError::OutOfMemory { .. })));
    }
}

/// Runs `check` on the first GPU.
fn check_on_gpu<S: Scalar>(precision: Precision, format: Format, tolerance: f64) {
    let scratch = ScratchFolder::new(&format!("gpu-{precision}"));
    let options = options(&scratch, precision);
    let data_set = DataSet::prepare(scratch.path(), Shape::TINY).unwrap();
    let device = CudaDevice::open(S::STORAGE, format).unwrap();
    let found = on_device::<S, _>(device, &data_set, &options);
    let wanted = steps(&mut Training::<S>::new(&Ledger::new(None), &data_set, &options).unwrap());
    for (number, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        let difference = (found.loss - wanted.loss).abs();
        assert!(difference <= tolerance, "step {number} in {precision}: {} instead of {}", found.loss, wanted.loss);
        assert!(found.forward.as_nanos() > 0 && found.backward.as_nanos() > 0 && found.update.as_nanos() > 0);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_gpu_trains_as_the_host_does() {
    check_on_gpu::<f32>(Precision::F32, Format::Fp32, 1e-3);
    check_on_gpu::<Tf32>(Precision::Tf32, Format::Tf32, 0.01);
    check_on_gpu::<bf16>(Precision::Bf16, Format::Bf16, 0.05);
    check_on_gpu::<f16>(Precision::F16, Format::Fp16, 0.02);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_gpu_without_memory_says_so() {
    let device = CudaDevice::open(f32::STORAGE, Format::Fp32).unwrap();
    let free_bytes = usize::try_from(device.free_bytes().unwrap()).unwrap();
    assert!(device.memory(2 * free_bytes).unwrap().is_none());
    assert!(device.memory(1 << 20).unwrap().is_some());
}
