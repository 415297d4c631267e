//! Reads what NVML reports about the GPUs of this machine, without a probe: their properties and current state.

use std::thread;
use std::time::Duration;

use nvml_wrapper::enum_wrappers::device::Sampling;
use nvml_wrapper::{Device, Nvml};

use super::ask::{Questions, Told, reason};
use super::gpm::Gpm;
use super::list::{Handle, handles, is_divided};
use super::watched::{memory, processes};
use super::{GpuIdentity, Visible};
use crate::machine::foreign::nvml::remapped_rows;
use crate::machine::telemetry::{GpuFacts, Holder, MeterState, Mig, Pcie, Power, RemappedRows};

/// Time between two samples of GPM; the driver's own period is 100 ms (nvml.h, `nvmlGpmSampleGet`).
const BETWEEN_SAMPLES: Duration = Duration::from_millis(150);

/// Returns all GPUs and instances, including the GPUs that `visible` hides.
pub(super) fn facts(nvml: &'static Nvml, visible: &Visible) -> Told<Vec<GpuFacts>> {
    let found = handles(nvml)?;
    let identities: Vec<GpuIdentity> = found.iter().map(|handle| handle.identity.clone()).collect();
    let places = visible.choose(&identities);
    let gpm = gpm_states(nvml, &found);
    let each = found.iter().zip(gpm).enumerate();
    let mut facts: Vec<GpuFacts> = each.map(|(at, (handle, gpm))| of(handle, gpm, places.contains(&at))).collect();
    facts.extend(divided_without_instances(nvml, &identities));
    Ok(facts)
}

/// Takes two samples of GPM on each GPU. Returns the reason for each GPU on which GPM does not work.
fn gpm_states(nvml: &'static Nvml, found: &[Handle]) -> Vec<Option<String>> {
    let mut meters: Vec<Gpm> = found.iter().map(|_| Gpm::default()).collect();
    let first: Vec<_> = found.iter().zip(&mut meters).map(|(handle, gpm)| gpm.sample(nvml, handle)).collect();
    if first.iter().any(Option::is_some) {
        thread::sleep(BETWEEN_SAMPLES);
    }
    let each = found.iter().zip(&mut meters).zip(&first);
    each.map(|((handle, gpm), first)| {
        if let Some(first) = first
            && let Some(second) = gpm.sample(nvml, handle)
        {
            gpm.prove(nvml, first, &second);
        }
        gpm.failure().map(str::to_owned)
    })
    .collect()
}

fn of(handle: &Handle, gpm: Option<String>, is_visible: bool) -> GpuFacts {
    let Handle { identity, device, .. } = handle;
    let whole = handle.whole();
    let asked = &mut Questions::default();
    let memory = memory(device, asked);
    let total = memory.as_ref().map_or(u64::MAX, |memory| memory.total);
    let listed = processes(device, asked, total);
    let mut facts = GpuFacts {
        index: Some(identity.index),
        uuid: Some(identity.uuid.clone()),
        name: identity.name.clone(),
        is_visible,
        compute_capability: whole.cuda_compute_capability().ok().map(|version| (version.major, version.minor)),
        memory_bytes: memory.as_ref().ok().map(|memory| memory.total),
        memory_used_bytes: memory.as_ref().ok().map(|memory| memory.used),
        pcie: pcie(whole),
        nvlinks: nvlinks(whole),
        power: power(whole),
        mig: match &identity.parent {
            Some(parent) => Some(Mig::InstanceOf(parent.clone())),
            None => whole.mig_mode().is_ok().then_some(Mig::Off),
        },
        persistence: whole.is_in_persistent_mode().ok(),
        busy: device.utilization_rates().ok().map(|shares| f64::from(shares.gpu) / 100.0),
        remapped_rows: remapped_rows(whole)
            .ok()
            .map(|(is_pending, has_failed)| RemappedRows { is_pending, has_failed }),
        processes: listed.as_ref().ok().map(|listed| listed.iter().map(|&(pid, bytes)| holder(pid, bytes)).collect()),
        ..GpuFacts::default()
    };
    facts.meters = meters(device, gpm, memory.err(), listed.err());
    facts
}

/// Returns the sources that are read while a probe runs, each with the reason if it is absent. `gpm`, `memory` and
/// `processes` are the reasons for these three sources.
fn meters(
    device: &Device<'_>,
    gpm: Option<String>,
    memory: Option<String>,
    processes: Option<String>,
) -> Vec<MeterState> {
    let state = |name, absent: Option<String>| MeterState { name, absent };
    let busy = device.samples(Sampling::GpuUtilization, None::<u64>).map(drop);
    vec![
        state("GPM", gpm),
        state("GPU busy", busy.err().map(|error| reason(&error))),
        state("memory", memory),
        state("processes", processes),
        state("power", device.power_usage().err().map(|error| reason(&error))),
        state("energy", device.total_energy_consumption().err().map(|error| reason(&error))),
    ]
}

fn holder(pid: u32, memory_bytes: Option<u64>) -> Holder {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let plain = name.map(|name| name.trim().replace(char::is_control, " ")).filter(|name| !name.is_empty());
    Holder { pid, name: plain, memory_bytes }
}

fn pcie(device: &Device<'_>) -> Option<Pcie> {
    let pcie = Pcie {
        generation: device.current_pcie_link_gen().ok(),
        width: device.current_pcie_link_width().ok(),
        max_generation: device.max_pcie_link_gen().ok(),
        max_width: device.max_pcie_link_width().ok(),
    };
    (pcie != Pcie::default()).then_some(pcie)
}

/// Returns the number of active NVLinks; `None` if the device has no NVLinks.
fn nvlinks(device: &Device<'_>) -> Option<u32> {
    /// `NVML_NVLINK_MAX_LINKS` in nvml.h.
    const MOST: u32 = 18;
    let states: Vec<bool> = (0..MOST).filter_map(|link| device.link_wrapper_for(link).is_active().ok()).collect();
    (!states.is_empty()).then(|| u32::try_from(states.iter().filter(|&&up| up).count()).unwrap_or(MOST))
}

fn power(device: &Device<'_>) -> Option<Power> {
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    let power = Power {
        now_watts: device.power_usage().ok().map(watts),
        limit_watts: device.enforced_power_limit().ok().map(watts),
        default_limit_watts: device.power_management_limit_default().ok().map(watts),
    };
    (power != Power::default()).then_some(power)
}

/// Returns the GPUs in MIG mode without a MIG instance. Nothing can compute on them, so `known` does not contain them.
fn divided_without_instances(nvml: &'static Nvml, known: &[GpuIdentity]) -> Vec<GpuFacts> {
    let devices = (0..nvml.device_count().unwrap_or(0)).filter_map(|number| nvml.device_by_index(number).ok());
    let is_known = |uuid: &str| known.iter().any(|gpu| gpu.uuid == uuid || gpu.parent.as_deref() == Some(uuid));
    devices
        .filter(is_divided)
        .filter_map(|device| Some((device.uuid().ok().filter(|uuid| !is_known(uuid))?, device)))
        .map(|(uuid, device)| GpuFacts {
            uuid: Some(uuid),
            name: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
            mig: Some(Mig::WithoutInstances),
            ..GpuFacts::default()
        })
        .collect()
}
