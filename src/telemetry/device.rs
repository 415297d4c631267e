//! Which device trains.
//!
//! GPUs are those that NVML lists. Where it does not, they are read from `/proc/driver/nvidia`, which the NVIDIA kernel
//! module provides. Neither has run on a machine with a GPU yet: the tests use a stand-in for NVML, and recorded files.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GpuMeter, HostMemory};
use crate::quantity;

/// The variable that names the GPUs that a program may see (CUDA C++ Programming Guide, "CUDA Environment Variables");
/// empty, it hides all of them.
pub const VISIBLE_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// Which device is to train.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceChoice {
    /// The GPUs where there are any, else the processor.
    #[default]
    Auto,
    /// The processor, whatever else there is.
    Cpu,
    /// The GPUs, and nothing else will do.
    Gpu,
}

/// There is no GPU where there has to be one; what is missing, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the spec asks for a GPU (`device = \"gpu\"`), and there is none: {missing}")]
pub struct NoGpu {
    missing: String,
}

/// The device that trains and its driver, as a study names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// GPUs by model, or the processor with its cores and memory.
    pub name: String,
    /// The GPU driver's version, or `none`.
    pub driver: String,
    /// Whether there is a GPU.
    pub is_gpu: bool,
}

impl Device {
    /// The device of this machine.
    pub fn detect() -> Self {
        Self::by_meter().unwrap_or_else(|| Self::under(Path::new("/proc")))
    }

    /// By NVML, which tells instances of a GPU that is divided; the names of whole ones are those of the kernel module.
    fn by_meter() -> Option<Self> {
        let meter = GpuMeter::shared().ok()?;
        let mut models: Vec<String> = meter.gpus().ok()?.into_iter().map(|gpu| gpu.name).collect();
        models.sort();
        let driver = meter.driver().to_owned();
        (!models.is_empty()).then(|| Self { name: grouped(&models), driver, is_gpu: true })
    }

    /// The device of this machine that is asked for. `visible` is the value of [`VISIBLE_GPUS`] that the step gets.
    ///
    /// # Errors
    /// It has to be a GPU, and there is none or all are hidden.
    pub fn choose(choice: DeviceChoice, visible: Option<&str>) -> Result<Self, NoGpu> {
        Self::choose_from(Path::new("/proc"), Self::detect, choice, visible)
    }

    fn choose_from(
        proc: &Path,
        detect: impl FnOnce() -> Self,
        choice: DeviceChoice,
        visible: Option<&str>,
    ) -> Result<Self, NoGpu> {
        match choice {
            DeviceChoice::Auto => Ok(detect()),
            DeviceChoice::Cpu => Ok(Self::processor(proc)),
            DeviceChoice::Gpu => {
                let device = detect();
                let missing = missing(proc, &device, visible);
                missing.map_or(Ok(device), |missing| Err(NoGpu { missing }))
            }
        }
    }

    fn processor(proc: &Path) -> Self {
        Self { name: processor(proc), driver: "none".to_owned(), is_gpu: false }
    }

    fn under(proc: &Path) -> Self {
        let gpus = gpu_models(&proc.join("driver/nvidia/gpus"));
        if gpus.is_empty() {
            return Self::processor(proc);
        }
        let version = fs::read_to_string(proc.join("driver/nvidia/version")).unwrap_or_default();
        Self { name: grouped(&gpus), driver: driver_version(&version), is_gpu: true }
    }
}

/// What keeps a step from a GPU, if anything does.
fn missing(proc: &Path, device: &Device, visible: Option<&str>) -> Option<String> {
    if !device.is_gpu {
        let module = match fs::read_to_string(proc.join("driver/nvidia/version")) {
            Ok(version) => format!("the NVIDIA driver {} is loaded and knows of no GPU", driver_version(&version)),
            Err(_) => "the NVIDIA driver is not loaded (there is no /proc/driver/nvidia)".to_owned(),
        };
        return Some(module);
    }
    // The list ends at the first name that is no device's.
    let is_hidden = |list: &str| list.split(',').next().is_none_or(|first| matches!(first.trim(), "" | "-1"));
    let list = visible.filter(|list| is_hidden(list))?;
    Some(format!("{VISIBLE_GPUS}={list} hides all of them"))
}

fn gpu_models(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut models: Vec<String> = entries
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("information")).ok())
        .filter_map(|text| Some(text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim().to_owned()))
        .collect();
    models.sort();
    models
}

fn grouped(models: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for chunk in models.chunk_by(|a, b| a == b) {
        parts.push(if chunk.len() == 1 { chunk[0].clone() } else { format!("{} x {}", chunk.len(), chunk[0]) });
    }
    parts.join(" + ")
}

/// The version from a line like `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ...`.
fn driver_version(text: &str) -> String {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines()
        .find(|line| line.starts_with("NVRM version"))
        .and_then(|line| line.split_whitespace().find(is_version))
        .unwrap_or("unknown")
        .to_owned()
}

fn processor(proc: &Path) -> String {
    let text = fs::read_to_string(proc.join("cpuinfo")).unwrap_or_default();
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':').map(str::trim))
    };
    let model = field("model name").or_else(|| field("Hardware")).unwrap_or(std::env::consts::ARCH);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = HostMemory::read().map_or_else(String::new, |memory| {
        const GIB: u64 = 1 << 30;
        // Whole GiB: what the kernel keeps for itself differs from one start to the next.
        format!(", {}", quantity::show_bytes((memory.total_bytes + GIB / 2) / GIB * GIB))
    });
    format!("{model}, {cores} cores{memory}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_and_driver_come_from_the_kernel_module() {
        let proc = tempfile::tempdir().unwrap();
        for (slot, model) in [("0000:01:00.0", "NVIDIA H200"), ("0000:02:00.0", "NVIDIA H200")] {
            let folder = proc.path().join("driver/nvidia/gpus").join(slot);
            fs::create_dir_all(&folder).unwrap();
            let text = format!("Model: \t\t {model}\nIRQ:   \t\t 110\nGPU UUID: \t GPU-0a\nBus Location: \t {slot}\n");
            fs::write(folder.join("information"), text).unwrap();
        }
        let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: gcc 12.2.0\n";
        fs::write(proc.path().join("driver/nvidia/version"), version).unwrap();
        let device = Device::under(proc.path());
        assert_eq!(device.name, "2 x NVIDIA H200");
        assert_eq!(device.driver, "580.95.05");
        assert!(device.is_gpu);
    }

    #[test]
    fn what_is_asked_for_is_chosen_or_what_is_missing_is_told() {
        let proc = tempfile::tempdir().unwrap();
        fs::write(proc.path().join("cpuinfo"), "model name\t: Some CPU\n").unwrap();
        let choose = |choice, visible| Device::choose_from(proc.path(), || Device::under(proc.path()), choice, visible);
        let refusal = |visible| choose(DeviceChoice::Gpu, visible).unwrap_err().to_string();
        assert!(
            refusal(None).ends_with("there is none: the NVIDIA driver is not loaded (there is no /proc/driver/nvidia)")
        );
        assert!(!choose(DeviceChoice::Auto, None).unwrap().is_gpu);
        let gpu = proc.path().join("driver/nvidia/gpus/0000:01:00.0");
        fs::create_dir_all(&gpu).unwrap();
        fs::write(proc.path().join("driver/nvidia/version"), "NVRM version: NVIDIA Module  580.95.05  x\n").unwrap();
        assert!(refusal(None).ends_with("the NVIDIA driver 580.95.05 is loaded and knows of no GPU"));
        fs::write(gpu.join("information"), "Model: \t NVIDIA L4\n").unwrap();
        for visible in [None, Some("0"), Some("GPU-1a,0")] {
            assert_eq!(choose(DeviceChoice::Gpu, visible).unwrap().name, "NVIDIA L4");
        }
        for visible in ["", "-1", " -1,0"] {
            assert!(refusal(Some(visible)).ends_with("hides all of them"), "{visible}");
        }
        assert!(choose(DeviceChoice::Auto, None).unwrap().is_gpu);
        let processor = choose(DeviceChoice::Cpu, None).unwrap();
        assert!(processor.name.starts_with("Some CPU, ") && processor.driver == "none" && !processor.is_gpu);
    }

    #[test]
    fn without_a_gpu_the_processor_is_the_device() {
        let proc = tempfile::tempdir().unwrap();
        fs::write(proc.path().join("cpuinfo"), "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n").unwrap();
        let device = Device::under(proc.path());
        assert!(device.name.starts_with("Some CPU @ 3 GHz, "), "{}", device.name);
        assert!(!device.is_gpu);
    }
}
