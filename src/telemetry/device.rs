//! Which device trains.
//!
//! GPUs are those that NVML lists. Where it does not, they are read from `/proc/driver/nvidia`, which the NVIDIA kernel
//! module provides. Neither has run on a machine with a GPU yet: the tests use a stand-in for NVML, and recorded files.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{GpuMeter, HostMemory};
use crate::quantity;

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

    fn under(proc: &Path) -> Self {
        let gpus = gpu_models(&proc.join("driver/nvidia/gpus"));
        if gpus.is_empty() {
            return Self { name: processor(proc), driver: "none".to_owned(), is_gpu: false };
        }
        let version = fs::read_to_string(proc.join("driver/nvidia/version")).unwrap_or_default();
        Self { name: grouped(&gpus), driver: driver_version(&version), is_gpu: true }
    }
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
    fn without_a_gpu_the_processor_is_the_device() {
        let proc = tempfile::tempdir().unwrap();
        fs::write(proc.path().join("cpuinfo"), "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n").unwrap();
        let device = Device::under(proc.path());
        assert!(device.name.starts_with("Some CPU @ 3 GHz, "), "{}", device.name);
        assert!(!device.is_gpu);
    }
}
