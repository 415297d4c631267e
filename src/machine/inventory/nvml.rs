//! Adds facts from NVML, about all GPUs.

use std::collections::BTreeMap;

use super::{Library, Machine};
use crate::machine::telemetry::{
    Dcgm, GpuFacts, GpuMeter, MeterState, Mig,
    nvml::{NoNvml, Visible},
};

/// Adds the GPUs, and the driver's version.
pub(super) fn add(machine: &mut Machine) {
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

/// Adds the DCGM state of GPUs that lack GPM; GPUs with GPM do not need DCGM. One query serves all GPUs, since a hanging
/// engine takes seconds.
pub(super) fn add_dcgm(gpus: &mut [GpuFacts]) {
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
