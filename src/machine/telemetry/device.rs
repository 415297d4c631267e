//! Finds the device that trains.
//!
//! NVML lists the GPUs. If it lists none, they are read from `/proc/driver/nvidia`, which the NVIDIA kernel module
//! provides. The tests use a stand-in for NVML, and recorded files.

use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nvml::{GpuIdentity, Visible};
use super::{GpuMeter, HostMemory};
use crate::model::quantity;

/// The variable that names the GPUs that a program may see (CUDA C++ Programming Guide, "CUDA Environment Variables").
/// An empty value hides all GPUs.
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

/// The error for a missing GPU, with the missing part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the spec asks for a GPU (`device = \"gpu\"`), but gputune found no GPU: {missing}")]
pub struct NoGpu {
    missing: String,
}

/// The device that trains and its driver, as a study's reports name them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// GPUs by model, or the CPU with its cores and memory.
    pub name: String,
    /// The GPU driver's version, or `none`.
    pub driver: String,
    /// True if it is a GPU.
    pub is_gpu: bool,
}

struct Gpus {
    /// The GPUs in the order of the PCI bus.
    list: Vec<GpuIdentity>,
    driver: String,
}

impl Device {
    /// Returns the device of this machine, including GPUs that programs do not see.
    pub fn detect() -> Self {
        let proc = Path::new("/proc");
        Gpus::detect(proc).map_or_else(|| Self::processor(proc), |gpus| gpus.named(&gpus.list, ""))
    }

    /// Returns the requested device of this machine, limited to the GPUs that a step sees.
    ///
    /// # Errors
    /// A GPU is required, but none exists or all are hidden.
    pub fn choose(choice: DeviceChoice, visible: &Visible) -> Result<Self, NoGpu> {
        let proc = Path::new("/proc");
        Self::choose_from(proc, || Gpus::detect(proc), choice, visible)
    }

    /// Returns the number of GPUs that a step sees; 0 if it is to train on the CPU.
    pub fn count_gpus(choice: DeviceChoice, visible: &Visible) -> u32 {
        let gpus = if choice == DeviceChoice::Cpu { None } else { Gpus::detect(Path::new("/proc")) };
        let seen = gpus.map_or(0, |gpus| visible.choose(&gpus.list).len());
        u32::try_from(seen).unwrap_or(u32::MAX)
    }

    fn choose_from(
        proc: &Path,
        detect: impl FnOnce() -> Option<Gpus>,
        choice: DeviceChoice,
        visible: &Visible,
    ) -> Result<Self, NoGpu> {
        if choice == DeviceChoice::Cpu {
            return Ok(Self::processor(proc));
        }
        let device = match detect() {
            Some(gpus) => gpus.seen(visible).ok_or_else(|| hidden(visible)),
            None => Err(absent(proc)),
        };
        match device {
            Err(missing) if choice == DeviceChoice::Gpu => Err(NoGpu { missing }),
            device => Ok(device.unwrap_or_else(|_| Self::processor(proc))),
        }
    }

    fn processor(proc: &Path) -> Self {
        Self { name: processor(proc), driver: "none".to_owned(), is_gpu: false }
    }
}

impl Gpus {
    /// Finds the GPUs; `None` if no GPU was found.
    fn detect(proc: &Path) -> Option<Self> {
        Self::by_meter().or_else(|| Self::by_kernel(proc))
    }

    /// Finds GPUs by NVML, which also reports MIG instances. NVML and the kernel module name whole GPUs alike.
    fn by_meter() -> Option<Self> {
        let meter = GpuMeter::shared().ok()?;
        let list = meter.gpus().ok()?;
        (!list.is_empty()).then(|| Self { list, driver: meter.driver().to_owned() })
    }

    fn by_kernel(proc: &Path) -> Option<Self> {
        let list = listed_by_kernel(&proc.join("driver/nvidia/gpus"));
        let version = fs::read_to_string(proc.join("driver/nvidia/version")).unwrap_or_default();
        (!list.is_empty()).then(|| Self { list, driver: driver_version(&version) })
    }

    /// Returns the GPUs that a program sees, as a device; `None` if it sees none.
    fn seen(&self, visible: &Visible) -> Option<Device> {
        let is_named = |prefix| visible.devices.as_ref().is_some_and(|list| list.trim_start().starts_with(prefix));
        let is_unknown = self.list.iter().any(|gpu| gpu.uuid.is_empty());
        // The kernel module reports no MIG instances, and not every UUID: the list may name any of these GPUs.
        if is_unknown && (is_named("GPU-") || is_named("MIG-")) {
            return Some(self.named(&self.list, ""));
        }
        let seen: Vec<GpuIdentity> = visible.choose(&self.list).into_iter().map(|at| self.list[at].clone()).collect();
        let list = visible.devices.as_deref().unwrap_or_default();
        let doubt = if visible.is_doubtful(&self.list) { list.trim() } else { "" };
        (!seen.is_empty()).then(|| self.named(&seen, doubt))
    }

    /// Returns the device of these GPUs. A nonempty `doubt` is a `CUDA_VISIBLE_DEVICES` list that selects some of them,
    /// but it is not known which.
    fn named(&self, gpus: &[GpuIdentity], doubt: &str) -> Device {
        let mut models: Vec<String> = gpus.iter().map(|gpu| gpu.name.clone()).collect();
        models.sort();
        let name = if doubt.is_empty() {
            grouped(&models)
        } else {
            models.dedup();
            format!("{} ({VISIBLE_GPUS}={doubt})", models.join(" or "))
        };
        Device { name, driver: self.driver.clone(), is_gpu: true }
    }
}

fn hidden(visible: &Visible) -> String {
    let list = visible.devices.as_deref().unwrap_or_default().replace(char::is_control, " ");
    format!("{VISIBLE_GPUS}={list} hides all of them")
}

fn absent(proc: &Path) -> String {
    match fs::read_to_string(proc.join("driver/nvidia/version")) {
        Ok(version) => format!("the NVIDIA driver {} is loaded and knows of no GPU", driver_version(&version)),
        Err(_) => "the NVIDIA driver is not loaded (there is no /proc/driver/nvidia)".to_owned(),
    }
}

/// Returns the GPUs for which the kernel module has a folder. An unknown UUID (`GPU-????????-...`) becomes empty.
fn listed_by_kernel(folder: &Path) -> Vec<GpuIdentity> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    let texts = folders.iter().filter_map(|folder| fs::read_to_string(folder.join("information")).ok());
    let field = |text: &str, name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let known = texts.filter_map(|text| {
        let uuid = field(&text, "GPU UUID:").filter(|uuid| !uuid.contains('?'));
        Some((field(&text, "Model:")?, uuid.unwrap_or_default()))
    });
    (0..).zip(known).map(|(index, (name, uuid))| GpuIdentity { index, uuid, name, parent: None }).collect()
}

fn grouped(models: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for chunk in models.chunk_by(|a, b| a == b) {
        parts.push(if chunk.len() == 1 { chunk[0].clone() } else { format!("{} x {}", chunk.len(), chunk[0]) });
    }
    parts.join(" + ")
}

/// Returns the version in a line like `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ...`.
fn driver_version(text: &str) -> String {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let line = text.lines().find(|line| line.starts_with("NVRM version"));
    line.and_then(|line| line.split_whitespace().find(is_version)).unwrap_or("unknown").to_owned()
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
        // Rounds to whole GiB, since the memory that the kernel keeps for itself differs at each boot.
        format!(", {}", quantity::show_bytes((memory.total_bytes + GIB / 2) / GIB * GIB))
    });
    format!("{model}, {cores} cores{memory}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::write;

    fn visible(devices: Option<&str>) -> Visible {
        Visible { devices: devices.map(str::to_owned), order: None }
    }

    #[test]
    fn gpus_and_driver_come_from_the_kernel_module() {
        let proc = tempfile::tempdir().unwrap();
        for slot in ["0000:01:00.0", "0000:02:00.0"] {
            let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 110\nGPU UUID: \t GPU-0a\n";
            write(proc.path(), &format!("driver/nvidia/gpus/{slot}/information"), text);
        }
        let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: gcc 12.2.0\n";
        write(proc.path(), "driver/nvidia/version", version);
        let gpus = Gpus::by_kernel(proc.path()).unwrap();
        let expected = Device { name: "2 x NVIDIA H200".to_owned(), driver: "580.95.05".to_owned(), is_gpu: true };
        assert_eq!(gpus.seen(&visible(None)), Some(expected));
    }

    #[test]
    fn what_is_asked_for_is_chosen_or_what_is_missing_is_told() {
        let proc = tempfile::tempdir().unwrap();
        write(proc.path(), "cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n");
        let choose = |choice, devices| {
            Device::choose_from(proc.path(), || Gpus::by_kernel(proc.path()), choice, &visible(devices))
        };
        let refusal = |devices| choose(DeviceChoice::Gpu, devices).unwrap_err().to_string();
        let no_driver = "found no GPU: the NVIDIA driver is not loaded (there is no /proc/driver/nvidia)";
        assert!(refusal(None).ends_with(no_driver));
        assert!(!choose(DeviceChoice::Auto, None).unwrap().is_gpu);
        fs::create_dir_all(proc.path().join("driver/nvidia/gpus/0000:01:00.0")).unwrap();
        let inform = |text| write(proc.path(), "driver/nvidia/gpus/0000:01:00.0/information", text);
        write(proc.path(), "driver/nvidia/version", "NVRM version: NVIDIA Module  580.95.05  x\n");
        assert!(refusal(None).ends_with("the NVIDIA driver 580.95.05 is loaded and knows of no GPU"));
        inform("Model: \t NVIDIA L4\n");
        for devices in [None, Some("0"), Some("GPU-1a,0")] {
            assert_eq!(choose(DeviceChoice::Gpu, devices).unwrap().name, "NVIDIA L4");
        }
        for devices in ["", "-1", " -1,0", "7", "NoDevFiles", "0,0"] {
            let expected = format!("found no GPU: CUDA_VISIBLE_DEVICES={devices} hides all of them");
            assert!(refusal(Some(devices)).ends_with(&expected), "{devices}");
            assert!(!choose(DeviceChoice::Auto, Some(devices)).unwrap().is_gpu, "{devices}");
        }
        inform("Model: \t NVIDIA L4\nGPU UUID: \t GPU-0a\n");
        assert!(refusal(Some("GPU-zz")).ends_with("CUDA_VISIBLE_DEVICES=GPU-zz hides all of them"));
        assert_eq!(choose(DeviceChoice::Gpu, Some("GPU-0")).unwrap().name, "NVIDIA L4");
        inform("Model: \t NVIDIA L4\nGPU UUID: \t GPU-????????-????\n");
        assert!(choose(DeviceChoice::Gpu, Some("GPU-0")).unwrap().is_gpu, "it may be this one");
        assert!(choose(DeviceChoice::Auto, None).unwrap().is_gpu);
        let processor = choose(DeviceChoice::Cpu, None).unwrap();
        assert!(processor.name.starts_with("Some CPU @ 3 GHz, ") && processor.driver == "none" && !processor.is_gpu);
    }
}
