//! Lists the GPUs and MIG instances, and decides which of them CUDA lets a program use.

use std::collections::BTreeMap;

use nvml_wrapper::{Device, Nvml};

use super::ask::{Told, reason};
use crate::machine::foreign::nvml::gpu_instance_of;

/// The identity of a GPU, or of one of its instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuIdentity {
    /// The number of the GPU in the order of the PCI bus; an instance has the number of its whole GPU.
    pub index: u32,
    /// The UUID: `GPU-...`, or `MIG-...` for an instance.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// For an instance, the UUID of the GPU that it is part of.
    pub parent: Option<String>,
}

impl GpuIdentity {
    /// Returns the name of the GPU or instance in a sentence: `GPU 0`, or `MIG instance MIG-... of GPU 0`.
    pub fn place(&self) -> String {
        match self.parent {
            None => format!("GPU {}", self.index),
            Some(_) => format!("MIG instance {} of GPU {}", self.uuid, self.index),
        }
    }
}

#[derive(Debug)]
pub(super) struct Handle {
    pub(super) identity: GpuIdentity,
    pub(super) device: Device<'static>,
    /// For an instance, the whole GPU, and the number of the instance in it.
    pub(super) parent: Option<(Device<'static>, Told<u32>)>,
}

impl Handle {
    /// Returns the whole GPU; clocks, throttling and errors belong to it, not to an instance.
    pub(super) fn whole(&self) -> &Device<'static> {
        self.parent.as_ref().map_or(&self.device, |(whole, _)| whole)
    }
}

/// Lists all GPUs in the order of the PCI bus, with the instances of a divided GPU in place of the GPU itself.
///
/// An unreachable GPU is left out, such as a GPU that a container may not use.
pub(super) fn handles(nvml: &'static Nvml) -> Told<Vec<Handle>> {
    let count = nvml.device_count().map_err(|error| reason(&error))?;
    let mut failure = None;
    let mut devices: Vec<((u32, u32, u32), Device<'static>)> = Vec::new();
    for number in 0..count {
        match nvml.device_by_index(number) {
            Ok(device) => {
                // Without an address, NVML's own order is used, which is also the order of the bus.
                let address = device.pci_info().map_or((0, 0, number), |pci| (pci.domain, pci.bus, pci.device));
                devices.push((address, device));
            }
            Err(error) => failure = Some(reason(&error)),
        }
    }
    devices.sort_by_key(|(address, _)| *address);
    let found: Vec<Handle> =
        (0..).zip(devices).flat_map(|(index, (_, device))| with_instances(index, device)).collect();
    match failure {
        Some(failure) if found.is_empty() => Err(failure),
        _ => Ok(found),
    }
}

/// Returns true if a GPU is in MIG mode.
pub(super) fn is_divided(device: &Device<'_>) -> bool {
    /// `NVML_DEVICE_MIG_ENABLE` in nvml.h.
    const ENABLED: u32 = 1;
    device.mig_mode().is_ok_and(|mode| mode.current == ENABLED)
}

fn with_instances(index: u32, device: Device<'static>) -> Vec<Handle> {
    let uuid = device.uuid().unwrap_or_else(|_| format!("GPU-{index}"));
    if is_divided(&device) {
        let count = device.mig_device_count().unwrap_or(0);
        let instances =
            (0..count).filter_map(|number| instance(index, &uuid, device.mig_device_by_index(number).ok()?));
        return instances.collect();
    }
    let name = device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned());
    let identity = GpuIdentity { index, uuid, name, parent: None };
    vec![Handle { identity, device, parent: None }]
}

fn instance(index: u32, parent_uuid: &str, device: Device<'static>) -> Option<Handle> {
    let parent = device.mig_parent_device().ok()?;
    let number = gpu_instance_of(&device).map_err(|error| reason(&error));
    let identity = GpuIdentity {
        index,
        uuid: device.uuid().ok()?,
        name: device.name().or_else(|_| parent.name()).unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
        parent: Some(parent_uuid.to_owned()),
    };
    Some(Handle { identity, device, parent: Some((parent, number)) })
}

/// The variables that decide which GPUs a program may use (CUDA C++ Programming Guide, "CUDA Environment Variables").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visible {
    /// `CUDA_VISIBLE_DEVICES`, if set.
    pub devices: Option<String>,
    /// `CUDA_DEVICE_ORDER`, if set.
    pub order: Option<String>,
}

impl Visible {
    /// Returns the variables of a program that has this process's environment, plus these variables of its own.
    pub fn of(own: &BTreeMap<String, String>) -> Self {
        let variable = |name: &str| own.get(name).cloned().or_else(|| std::env::var(name).ok());
        Self { devices: variable("CUDA_VISIBLE_DEVICES"), order: variable("CUDA_DEVICE_ORDER") }
    }

    /// Returns the GPUs that the variables select, as rising indices into the list.
    ///
    /// The list ends at the first word that selects no GPU. A list with a duplicate word selects no GPU at all (as
    /// PyTorch reads it, `_parse_visible_devices` in `torch/cuda/__init__.py`).
    ///
    /// A number refers to CUDA's order, by default with the fastest GPU first. It is the order of the bus only with
    /// `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or if all GPUs are of one model. If models differ, a number may mean any GPU;
    /// only the GPU on which a process runs shows which GPU was meant. A GPU in MIG mode also has a number; CUDA then
    /// uses one of its instances.
    pub(in crate::machine::telemetry) fn choose(&self, gpus: &[GpuIdentity]) -> Vec<usize> {
        let all: Vec<usize> = (0..gpus.len()).collect();
        let Some(devices) = &self.devices else { return all };
        let is_certain = self.are_numbers_certain(gpus);
        let count = count(gpus);
        let mut taken: Vec<(Option<u32>, Vec<usize>)> = Vec::new();
        for word in devices.split(',').map(str::trim) {
            let number = word.parse::<u32>().ok();
            let meant = match number {
                Some(number) if number >= count => Vec::new(),
                Some(_) if !is_certain => all.clone(),
                Some(number) => all.iter().copied().filter(|&at| gpus[at].index == number).collect(),
                None => named(word, gpus),
            };
            if meant.is_empty() {
                break;
            }
            let word = (number, meant);
            if taken.contains(&word) {
                return Vec::new();
            }
            taken.push(word);
        }
        let mut places: Vec<usize> = taken.into_iter().flat_map(|(_, meant)| meant).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Returns true if it is uncertain which of the GPUs from [`choose`](Self::choose) are selected.
    pub(in crate::machine::telemetry) fn is_doubtful(&self, gpus: &[GpuIdentity]) -> bool {
        let count = count(gpus);
        let number = |word: &str| word.trim().parse::<u32>().ok().filter(|&number| number < count);
        let numbers = self.devices.iter().flat_map(|list| list.split(',').map_while(number)).count();
        (1..gpus.len()).contains(&numbers) && !self.are_numbers_certain(gpus)
    }

    fn are_numbers_certain(&self, gpus: &[GpuIdentity]) -> bool {
        let by_bus = self.order.as_deref().is_some_and(|order| order.trim() == "PCI_BUS_ID");
        by_bus || gpus.iter().all(|gpu| gpu.name == gpus[0].name)
    }
}

/// Returns the number of whole GPUs.
fn count(gpus: &[GpuIdentity]) -> u32 {
    gpus.last().map_or(0, |gpu| gpu.index + 1)
}

/// Returns the GPUs that a word selects. The word is the beginning of a UUID that no other UUID has, or
/// `MIG-GPU-<UUID>/<GPU instance>/<compute instance>` as in drivers before R470. The UUID of a divided GPU selects all
/// of its instances.
fn named(word: &str, gpus: &[GpuIdentity]) -> Vec<usize> {
    let places = |test: &dyn Fn(&GpuIdentity) -> bool| -> Vec<usize> {
        gpus.iter().enumerate().filter(|(_, gpu)| test(gpu)).map(|(at, _)| at).collect()
    };
    if word.starts_with("MIG-") {
        return Some(places(&|gpu| gpu.uuid.starts_with(word))).filter(|found| found.len() == 1).unwrap_or_default();
    }
    if !word.starts_with("GPU-") {
        return Vec::new();
    }
    let whole = |gpu: &GpuIdentity| gpu.parent.clone().unwrap_or_else(|| gpu.uuid.clone());
    let found = places(&|gpu| whole(gpu).starts_with(word));
    let is_one = found.iter().all(|&at| whole(&gpus[at]) == whole(&gpus[found[0]]));
    if is_one { found } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, uuid: &str, name: &str, parent: Option<&str>) -> GpuIdentity {
        GpuIdentity { index, uuid: uuid.to_owned(), name: name.to_owned(), parent: parent.map(str::to_owned) }
    }

    fn visible(devices: Option<&str>, order: Option<&str>) -> Visible {
        Visible { devices: devices.map(str::to_owned), order: order.map(str::to_owned) }
    }

    fn chosen(gpus: &[GpuIdentity], devices: &str) -> Vec<usize> {
        visible(Some(devices), None).choose(gpus)
    }

    #[test]
    fn gpus_are_chosen_as_cuda_does() {
        let gpus = [gpu(0, "GPU-a1", "H200", None), gpu(1, "GPU-ab", "H200", None), gpu(2, "GPU-c3", "H200", None)];
        for (devices, expected) in [
            ("", vec![]),
            ("1", vec![1]),
            (" 2 ,0,-1,1", vec![0, 2]),
            ("0,7,1", vec![0]),
            ("GPU-c", vec![2]),
            ("GPU-a", vec![]),
            ("GPU-ab,GPU-a1,none,GPU-c", vec![0, 1]),
            ("NoDevFiles", vec![]),
            ("0,0", vec![]),
            ("1,0, 1", vec![]),
            ("1,-1,1", vec![1]),
            ("GPU-ab,GPU-c,GPU-ab", vec![]),
            ("GPU-c3,GPU-c", vec![]),
        ] {
            assert_eq!(chosen(&gpus, devices), expected, "{devices:?}");
        }
        assert_eq!(visible(None, None).choose(&gpus), [0, 1, 2]);
        assert!(chosen(&[], "0").is_empty());
    }

    #[test]
    fn a_number_means_any_where_gpus_differ_and_the_fastest_comes_first() {
        let gpus = [gpu(0, "GPU-a1", "T4", None), gpu(1, "GPU-b2", "H200", None)];
        for (devices, order, expected, is_doubtful) in [
            (Some("0"), None, vec![0, 1], true),
            (Some("0"), Some("FASTEST_FIRST"), vec![0, 1], true),
            (Some("0"), Some("PCI_BUS_ID"), vec![0], false),
            (Some("GPU-b"), None, vec![1], false),
            (Some("1,0"), None, vec![0, 1], false),
            (Some("1,1"), None, vec![], false),
            (Some("1,7"), None, vec![0, 1], true),
            (None, None, vec![0, 1], false),
        ] {
            let visible = visible(devices, order);
            assert_eq!(visible.choose(&gpus), expected, "{visible:?}");
            assert_eq!(visible.is_doubtful(&gpus), is_doubtful, "{visible:?}");
        }
    }

    #[test]
    fn instances_are_chosen_by_their_identity_or_with_their_gpu() {
        let instance = |uuid| gpu(0, uuid, "H200 MIG 1g.18gb", Some("GPU-a1"));
        let gpus = [instance("MIG-1111"), instance("MIG-2222")];
        assert_eq!(chosen(&gpus, "MIG-2222"), [1]);
        assert!(chosen(&gpus, "MIG-").is_empty());
        assert_eq!(chosen(&gpus, "0"), [0, 1]);
        assert_eq!(chosen(&gpus, "GPU-a1"), [0, 1]);
        let old = [gpu(0, "MIG-GPU-a1/7/0", "A100 MIG 1g.5gb", Some("GPU-a1"))];
        assert_eq!(chosen(&old, "MIG-GPU-a1/7/0"), [0]);
    }
}
