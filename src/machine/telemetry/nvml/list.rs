//! Lists the GPUs and MIG instances.

use nvml_wrapper::{Device, Nvml};

use super::ask::{Told, reason};
use crate::machine::foreign::nvml::gpu_instance_of;

/// The identity of a GPU, or of one of its instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuIdentity {
    /// The number of the GPU in the order of the PCI bus; an instance has the number of its whole GPU.
    pub index: u32,
    /// Its identity: `GPU-...`, or `MIG-...` for an instance.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// For an instance, the identity of the GPU that it is part of.
    pub parent: Option<String>,
}

impl GpuIdentity {
    /// Its name in a sentence: `GPU 0`, or `MIG instance MIG-... of GPU 0`.
    pub fn place(&self) -> String {
        match self.parent {
            None => format!("GPU {}", self.index),
            Some(_) => format!("MIG instance {} of GPU {}", self.uuid, self.index),
        }
    }
}

/// The handle of a GPU or an instance.
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

fn with_instances(index: u32, device: Device<'static>) -> Vec<Handle> {
    /// `NVML_DEVICE_MIG_ENABLE` in nvml.h.
    const ENABLED: u32 = 1;
    let uuid = device.uuid().unwrap_or_else(|_| format!("GPU-{index}"));
    if device.mig_mode().is_ok_and(|mode| mode.current == ENABLED) {
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
