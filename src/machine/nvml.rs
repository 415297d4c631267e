//! What NVML tells, of all GPUs.

use std::collections::BTreeMap;

use super::{Library, Machine};
use crate::telemetry::nvml::Visible;
use crate::telemetry::{Dcgm, GpuFacts, GpuMeter, MeterState, Mig};

/// Adds the GPUs, and the driver's version.
pub(super) fn add(machine: &mut Machine) {
    let meter = GpuMeter::shared();
    machine.driver = meter.ok().map(|meter| meter.driver().to_owned());
    let found = meter.map_err(str::to_owned).and_then(|meter| meter.facts(&Visible::of(&BTreeMap::new())));
    let absent = found.as_ref().err().map(|reason| reason.trim_start_matches("NVML: ").to_owned());
    let cure =
        absent.as_ref().map(|_| "install the NVIDIA driver; a container needs the capability `utility`".to_owned());
    machine.libraries.push(Library { name: "libnvidia-ml.so.1", absent, cure });
    machine.gpus = found.unwrap_or_default();
    machine.gpus.iter_mut().for_each(add_dcgm);
}

/// DCGM is for GPUs without GPM; where there is GPM it asks that itself.
fn add_dcgm(gpu: &mut GpuFacts) {
    let has_gpm = gpu.meters.iter().any(|meter| meter.name == "GPM" && meter.absent.is_none());
    let Some(uuid) = gpu.uuid.as_ref().filter(|_| !has_gpm && gpu.mig != Some(Mig::WithoutInstances)) else { return };
    let absent = Dcgm::find(uuid).err();
    gpu.meters.insert(gpu.meters.len().min(1), MeterState { name: "DCGM", absent });
}
