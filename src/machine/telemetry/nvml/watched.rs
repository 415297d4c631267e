//! Watches one GPU while a probe runs.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, PerformancePolicy, Sampling};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{NVML_FI_DEV_PERF_POLICY_POWER, NVML_FI_DEV_PERF_POLICY_THERMAL};
use nvml_wrapper::{Device, EventSet, Nvml};

use super::ask::{Questions, Told, reason};
use super::changes::Settings;
use super::gpm::Gpm;
use super::list::Handle;
use super::owners::Owners;
use super::samples::{Counters, Memory, Samples, States, keep, number};
use crate::machine::foreign::nvml::memory_by_first_version;

/// A GPU, the calls that it supports, and its readings since the probe began.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) handle: Handle,
    pub(super) counters: Vec<Counters>,
    pub(super) states: Vec<States>,
    pub(super) gpm: Gpm,
    pub(super) busy: Samples,
    pub(super) power: Samples,
    /// Codes of Xid errors since the probe began.
    pub(super) xids: Vec<u64>,
    /// The reason, if Xid errors are not known.
    pub(super) no_events: Option<String>,
    /// Uncorrected memory errors when the probe began.
    ecc_before: Told<u64>,
    events: Option<EventSet<'static>>,
    asked: Questions,
    /// The time of the last reported share of a process, in microseconds since 1970.
    shares_until: u64,
}

impl Watched {
    pub(super) fn new(nvml: &'static Nvml, handle: Handle) -> Self {
        let (events, no_events) = match events(nvml, handle.whole()) {
            Ok(events) => (Some(events), None),
            Err(reason) => (None, Some(reason)),
        };
        Self {
            ecc_before: uncorrected(handle.whole()),
            counters: Vec::new(),
            states: Vec::new(),
            gpm: Gpm::default(),
            busy: Samples::of(Sampling::GpuUtilization, 100.0),
            power: Samples::of(Sampling::Power, 1e7),
            xids: Vec::new(),
            no_events,
            events,
            asked: Questions::default(),
            shares_until: now_in_micros(),
            handle,
        }
    }

    pub(super) fn look_at_counters(&mut self, nvml: &'static Nvml) {
        let energy = self.asked.ask("energy", || self.handle.device.total_energy_consumption());
        let (by_power, by_heat) = throttled(self.handle.whole(), &mut self.asked);
        let gpm = self.gpm.sample(nvml, &self.handle);
        let energy = energy.map(|millijoules| millijoules as f64 / 1000.0);
        keep(&mut self.counters, Counters { at: Instant::now(), energy, by_power, by_heat, gpm });
        let samples: Vec<_> = self.counters.iter().filter_map(|look| look.gpm.as_ref()).collect();
        if let [first, .., last] = samples[..] {
            self.gpm.prove(nvml, first, last);
        }
    }

    /// Reads the states of the GPU, and the processes on it.
    pub(super) fn look_at_states(&mut self, owners: &mut Owners) {
        let (device, whole, asked) = (&self.handle.device, self.handle.whole(), &mut self.asked);
        let memory = memory(device, asked);
        let total = memory.as_ref().map_or(u64::MAX, |memory| memory.total);
        let processes = processes(device, asked, total);
        let shares = shares(device, asked, &mut self.shares_until);
        processes.iter().flatten().for_each(|(pid, _)| owners.see(*pid));
        shares.iter().flatten().for_each(|(pid, _)| owners.see(*pid));
        let look = States {
            at: Instant::now(),
            memory,
            processes,
            power: asked.ask("power", || device.power_usage()).map(|milliwatts| f64::from(milliwatts) / 1000.0),
            sm_clock: asked.ask("SM clock", || whole.clock_info(Clock::SM)).map(f64::from),
            memory_clock: asked.ask("memory clock", || whole.clock_info(Clock::Memory)).map(f64::from),
            reasons: asked.ask("reasons", || whole.current_throttle_reasons()).map(|reasons| reasons.bits()),
            busy: asked.ask("busy", || device.utilization_rates()).map(|shares| f64::from(shares.gpu) / 100.0),
            shares,
        };
        self.busy.drain(&self.handle.device);
        self.power.drain(&self.handle.device);
        self.hear_events();
        keep(&mut self.states, look);
    }

    fn hear_events(&mut self) {
        /// More events than a working device can have in a second: a round number.
        const MOST: usize = 64;
        let Some(events) = &self.events else { return };
        for _ in 0..MOST {
            match events.wait(0) {
                Ok(event) => match event.event_data {
                    Some(XidError::Value(code)) => self.xids.push(code),
                    Some(XidError::Unknown) => self.xids.push(UNKNOWN_XID),
                    None => {}
                },
                Err(NvmlError::Timeout) => return,
                Err(error) => {
                    self.no_events = Some(reason(&error));
                    self.events = None;
                    return;
                }
            }
        }
    }

    /// Returns the uncorrected memory errors since the probe began.
    pub(super) fn new_ecc_errors(&self) -> Told<u64> {
        let before = self.ecc_before.clone()?;
        Ok(uncorrected(self.handle.whole())?.saturating_sub(before))
    }

    pub(super) fn settings(&self) -> Settings {
        Settings::read(self.handle.whole())
    }
}

/// NVML's code for an Xid error that it does not know (nvml.h, `nvmlEventData_t`).
const UNKNOWN_XID: u64 = 999;

fn events(nvml: &'static Nvml, device: &Device<'static>) -> Told<EventSet<'static>> {
    // The event set must be freed, so the call that frees it must exist.
    if let Err(error) = &nvml.lib().nvmlEventSetFree {
        return Err(reason(&NvmlError::FailedToLoadSymbol(error.to_string())));
    }
    let set = nvml.create_event_set().map_err(|error| reason(&error))?;
    device.register_events(EventTypes::CRITICAL_XID_ERROR, set).map_err(|error| reason(&error.error))
}

fn uncorrected(device: &Device<'_>) -> Told<u64> {
    let told = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    told.map_err(|error| reason(&error))
}

/// Returns the seconds in which power and heat limited the clocks. The sources are fields 74 and 75, which count
/// nanoseconds, or else the older call `violation_status`. Fields 251 to 273 are more detailed, but have other numbers
/// in drivers before 580.82 (nvml-wrapper #134).
fn throttled(device: &Device<'_>, asked: &mut Questions) -> (Told<f64>, Told<f64>) {
    const FIELDS: [u32; 2] = [NVML_FI_DEV_PERF_POLICY_POWER, NVML_FI_DEV_PERF_POLICY_THERMAL];
    const NANO: f64 = 1e-9;
    let fields = asked.ask("policies", || device.field_values_for(&FIELDS.map(FieldId)));
    let field = |at: usize| {
        let told = fields.as_ref().ok()?.get(at)?.as_ref().ok()?;
        Some(number(told.value.as_ref().ok()?) * NANO)
    };
    let mut counter = |at: usize, policy: PerformancePolicy, name: &'static str| match field(at) {
        Some(seconds) => Ok(seconds),
        None => asked.ask(name, || device.violation_status(policy)).map(|told| told.violation_time as f64 * NANO),
    };
    (counter(0, PerformancePolicy::Power, "power policy"), counter(1, PerformancePolicy::Thermal, "heat policy"))
}

/// Reads the memory in use, by the second version of the call if the driver has it.
pub(super) fn memory(device: &Device<'_>, asked: &mut Questions) -> Told<Memory> {
    match asked.ask("memory", || device.memory_info()) {
        Ok(memory) => Ok(Memory { used: memory.used, total: memory.total.saturating_sub(memory.reserved) }),
        Err(_) if asked.is_refused("memory") => {
            let told = asked.ask("memory by the first version", || memory_by_first_version(device));
            told.map(|(used, total)| Memory { used, total })
        }
        Err(reason) => Err(reason),
    }
}

/// Reads the processes that compute, with their memory. A size that exceeds the device's memory is dropped: driver
/// 535.54 mixed up the members of the structure (nvitop #75).
pub(super) fn processes(device: &Device<'_>, asked: &mut Questions, total: u64) -> Told<Vec<(u32, Option<u64>)>> {
    let told = match asked.ask("processes", || device.running_compute_processes()) {
        Err(_) if asked.is_refused("processes") => {
            asked.ask("processes by the second version", || device.running_compute_processes_v2())
        }
        told => told,
    }?;
    // The other calls list only the server of the Multi-Process Service. Without this call there is no client.
    let clients = asked.ask("clients", || device.mps_running_compute_processes()).unwrap_or_default();
    let mut processes: Vec<(u32, Option<u64>)> = told
        .into_iter()
        .chain(clients)
        .filter(|process| process.pid != 0)
        .map(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) if bytes <= total => (process.pid, Some(bytes)),
            _ => (process.pid, None),
        })
        .collect();
    processes.sort_unstable();
    processes.dedup_by_key(|(pid, _)| *pid);
    Ok(processes)
}

/// Reads the share of time in which kernels of each process ran: the mean of its samples since the last reading. Old
/// samples and samples above 100% are dropped; drivers return both (nvtop #110).
fn shares(device: &Device<'_>, asked: &mut Questions, until: &mut u64) -> Told<Vec<(u32, f64)>> {
    let since = *until;
    let samples = asked.ask("shares", || match device.process_utilization_stats(since) {
        Err(NvmlError::NotFound) => Ok(Vec::new()),
        told => told,
    })?;
    let mut shares: Vec<(u32, f64)> = Vec::new();
    for sample in samples.iter().filter(|sample| sample.timestamp > since && sample.sm_util <= 100 && sample.pid != 0) {
        *until = sample.timestamp.max(*until);
        shares.push((sample.pid, f64::from(sample.sm_util) / 100.0));
    }
    Ok(means(&shares))
}

/// Returns the mean share of each process.
fn means(shares: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let mut of_each: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for &(pid, share) in shares {
        let (sum, count) = of_each.entry(pid).or_default();
        (*sum, *count) = (*sum + share, *count + 1.0);
    }
    of_each.into_iter().map(|(pid, (sum, count))| (pid, sum / count)).collect()
}

pub(super) fn now_in_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_process_is_the_mean_of_its_samples() {
        assert_eq!(means(&[(7, 1.0), (3, 0.25), (7, 0.0), (7, 0.5)]), [(3, 0.25), (7, 0.5)]);
        assert!(means(&[]).is_empty());
    }
}
