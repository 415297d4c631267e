//! Describes the machine for a training job: GPUs, driver, cores, memory, disk, and their problems.
//!
//! `docs/device.md` describes the output of `gputune device`, and `docs/design/json.md` its JSON.

mod host;
mod warnings;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;

pub use host::{Disk, Host, Processors};
pub use warnings::{BUSY, RULES, Rule, Warning};

use crate::machine::telemetry::nvml::{NoNvml, Visible};
use crate::machine::telemetry::{Dcgm, Device, GpuFacts, GpuMeter, MeterState, Mig};
use crate::model::Precision;

/// The version of the JSON; it is raised when a member changes its meaning or is removed.
pub const FORMAT: u32 = 1;

/// The description of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Machine {
    /// The version of this format, [`FORMAT`].
    pub format: u32,
    /// The GPUs and MIG instances.
    pub gpus: Vec<GpuFacts>,
    /// The version of the GPU driver.
    pub driver: Option<String>,
    /// The version of CUDA that the driver supports.
    pub cuda: Option<String>,
    /// The libraries that gputune itself uses on GPUs.
    pub libraries: Vec<Library>,
    /// CPUs, memory, disk.
    pub host: Host,
    /// Problems, with remedies.
    pub warnings: Vec<Warning>,
}

/// A library that gputune looks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Library {
    /// Its name.
    pub name: &'static str,
    /// Why it cannot be used; `None` if it can be used.
    pub absent: Option<String>,
    /// The remedy, if known.
    pub cure: Option<String>,
}

impl Machine {
    /// Describes the machine. Changes no settings and takes no device memory. `out` is the folder for results.
    pub fn look(out: &Path) -> Self {
        let mut machine = patiently(look_at_gpus).unwrap_or_else(|| Self {
            libraries: vec![Library {
                name: "driver",
                absent: Some("it does not answer".to_owned()),
                cure: Some("look into the kernel's log with `dmesg`; a GPU that is lost needs a restart".to_owned()),
            }],
            ..Self::default()
        });
        add_dcgm(&mut machine.gpus);
        machine.format = FORMAT;
        machine.host = Host::look(out);
        machine.warnings = warnings::of(&machine);
        machine
    }

    /// Returns the second part of the key of stored ceilings: the driver's version, or else its CUDA version.
    pub fn driver_key(&self) -> String {
        let cuda = || self.cuda.as_ref().map(|version| format!("cuda-{version}"));
        self.driver.clone().or_else(cuda).unwrap_or_else(|| "unknown".to_owned())
    }

    /// Returns why no GPU can be used, in one line, with a remedy; `None` if a GPU can be used.
    pub fn without_gpu(&self) -> Option<(String, Option<String>)> {
        if self.gpus.iter().any(|gpu| gpu.is_visible) {
            return None;
        }
        if !self.gpus.is_empty() {
            let cure = Some("look at CUDA_VISIBLE_DEVICES".to_owned());
            return Some(("none of the GPUs is visible to programs".to_owned(), cure));
        }
        // CUDA's own reason is the most informative.
        let missing = || self.libraries.iter().filter(|library| library.absent.is_some());
        let library = missing().find(|library| library.name.starts_with("libcuda")).or_else(|| missing().next());
        Some(library.map_or(("no GPU was found".to_owned(), None), |library| {
            (library.absent.clone().unwrap_or_default(), library.cure.clone())
        }))
    }
}

/// Runs `ask`, which queries a driver, in a thread. `None` if the driver hangs; the thread then stays behind.
fn patiently<T: Send + 'static>(ask: fn() -> T) -> Option<T> {
    // A driver without persistence mode starts all GPUs at its first query, which takes long.
    const PATIENCE: Duration = Duration::from_secs(45);
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().name("driver".to_owned()).spawn(move || drop(sender.send(ask()))).ok()?;
    receiver.recv_timeout(PATIENCE).ok()
}

/// Returns the GPUs that programs see, with only the facts that CUDA reports at once. NVML's meters take longer. They
/// are queried only if CUDA shows nothing, for example if only the step's container may use the GPUs.
fn visible_gpus() -> Vec<GpuFacts> {
    let mut machine = Machine::default();
    #[cfg(feature = "cuda")]
    cuda::add_devices(&mut machine);
    if machine.gpus.is_empty() {
        add_nvml(&mut machine);
    }
    machine.gpus
}

fn look_at_gpus() -> Machine {
    let mut machine = Machine::default();
    add_nvml(&mut machine);
    #[cfg(feature = "cuda")]
    cuda::add(&mut machine);
    #[cfg(not(feature = "cuda"))]
    machine.libraries.push(Library {
        name: "CUDA",
        absent: Some("this gputune was built without CUDA".to_owned()),
        cure: Some("build it with the feature `cuda`".to_owned()),
    });
    let kernel = Device::detect();
    if machine.driver.is_none() && kernel.is_gpu {
        machine.driver = Some(kernel.driver);
    }
    machine
}

/// Adds the GPUs that NVML shows, and the driver's version.
fn add_nvml(machine: &mut Machine) {
    let meter = GpuMeter::shared();
    machine.driver = meter.ok().map(|meter| meter.driver().to_owned());
    let found = match meter {
        Ok(meter) => meter.facts(&Visible::of(&BTreeMap::new())).map_err(|reason| NoNvml::told(&reason)),
        Err(error) => Err(error.clone()),
    };
    let absent = found.as_ref().err().map(|error| error.reason.clone());
    let cure = found.as_ref().err().map(|error| error.cure.to_owned());
    machine.libraries.push(Library { name: "libnvidia-ml.so.1", absent, cure });
    machine.gpus = found.unwrap_or_default();
}

/// Adds the DCGM state of GPUs that lack GPM. One query serves all GPUs, since a hanging host engine takes seconds.
fn add_dcgm(gpus: &mut [GpuFacts]) {
    let mut known = None;
    for gpu in gpus {
        let has_gpm = gpu.meters.iter().any(|meter| meter.name == "GPM" && meter.absent.is_none());
        let is_asked = !gpu.meters.is_empty() && !has_gpm && gpu.mig != Some(Mig::WithoutInstances);
        let Some(uuid) = gpu.uuid.as_ref().filter(|_| is_asked) else { continue };
        let absent = match known.get_or_insert_with(Dcgm::known) {
            Ok(known) if known.contains(uuid) => None,
            Ok(_) => Some("the host engine does not know this GPU".to_owned()),
            Err(reason) => Some(reason.clone()),
        };
        gpu.meters.insert(1, MeterState { name: "DCGM", absent });
    }
}

/// Facts from CUDA's driver, which shows the devices that `CUDA_VISIBLE_DEVICES` leaves.
#[cfg(feature = "cuda")]
mod cuda {
    use super::{Library, Machine};
    use crate::machine::foreign::cuda::{self, CudaError, DeviceFacts};
    use crate::machine::telemetry::{GpuFacts, Mig, VISIBLE_GPUS};

    /// Adds the version of CUDA, cuBLASLt, and the facts about GPUs that only CUDA's driver knows.
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

    /// Adds the version of CUDA and the devices that CUDA's driver shows.
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

    /// Hides the GPUs that CUDA does not show: it reads `CUDA_VISIBLE_DEVICES` in its own way. Does nothing if CUDA fails. CUDA
    /// shows a program only one MIG instance even if the variable leaves several, so instances stay visible then.
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

    /// Compares UUIDs without their prefix, since CUDA also gives an instance the prefix `GPU-`.
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
}

/// The least capable GPU that programs see. All of them have its precisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// The model.
    pub name: String,
    /// Compute capability.
    pub compute_capability: (i32, i32),
}

impl Hardware {
    /// Queries the GPUs that programs see; `None` if there are none or if the driver does not answer.
    pub fn detect() -> Option<Self> {
        Self::of(&patiently(visible_gpus)?)
    }

    /// Returns the least capable of these GPUs.
    pub fn of(gpus: &[GpuFacts]) -> Option<Self> {
        let seen = gpus.iter().filter(|gpu| gpu.is_visible);
        let known =
            seen.filter_map(|gpu| Some(Self { name: gpu.name.clone(), compute_capability: gpu.compute_capability? }));
        known.min_by_key(|hardware| hardware.compute_capability)
    }

    /// Returns true if it has a precision.
    pub fn has(&self, precision: Precision) -> bool {
        precision.is_in_hardware(self.compute_capability)
    }

    /// Returns why it lacks a precision, such as `bf16 begins with compute capability 8.0, and Tesla V100 has 7.0`.
    pub fn lacks(&self, precision: Precision) -> String {
        let (since, (major, minor), name) = (precision.since(), self.compute_capability, &self.name);
        let since = format!("{}.{}", since.0, since.1);
        format!("{precision} begins with compute capability {since}, and {name} has {major}.{minor}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_able_visible_gpu_counts() {
        let gpu = |name: &str, compute_capability, is_visible| GpuFacts {
            name: name.to_owned(),
            compute_capability: Some(compute_capability),
            is_visible,
            ..GpuFacts::default()
        };
        let gpus = [gpu("H200", (9, 0), true), gpu("T4", (7, 5), true), gpu("K80", (3, 7), false)];
        let hardware = Hardware::of(&gpus).unwrap();
        assert!(hardware.has(Precision::Fp16) && !hardware.has(Precision::Bf16));
        assert_eq!(hardware.lacks(Precision::Bf16), "bf16 begins with compute capability 8.0, and T4 has 7.5");
        assert_eq!(Hardware::of(&gpus[2..]), None);
    }
}
