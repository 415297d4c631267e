//! The functions that gputune calls, except for performance monitoring. A device's handle is its place, counted from 1.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::Mutex;

use super::layout::{EventData, Field, Memory, MemoryV2, Pci, Process, ProcessShare, Sample, Shares, Violation};
use super::script::{
    Gpu, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, SUCCESS, TIMEOUT, Told, script,
};

pub(crate) fn gpu(device: usize) -> Told<&'static Gpu> {
    device.checked_sub(1).and_then(|place| script().gpus.get(place)).ok_or(INVALID_ARGUMENT)
}

/// Returns the result code of a function for a device.
pub(crate) fn answer(device: usize, function: &str, does: impl FnOnce(&'static Gpu) -> Told<()>) -> u32 {
    let done = gpu(device).and_then(|gpu| {
        gpu.may(function)?;
        does(gpu)
    });
    done.err().unwrap_or(SUCCESS)
}

fn write(text: &str, buffer: *mut u8, length: u32) -> Told<()> {
    if text.len() >= length as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller says how long the buffer is, and the text with its end is no longer.
    unsafe {
        buffer.copy_from_nonoverlapping(text.as_ptr(), text.len());
        *buffer.add(text.len()) = 0;
    }
    Ok(())
}

/// Fills an array; `count` holds its room and gets its length. Without an array, only the length is returned.
fn fill<T>(items: Vec<T>, count: &mut u32, array: *mut T) -> Told<()> {
    let room = *count as usize;
    *count = u32::try_from(items.len()).unwrap_or(u32::MAX);
    if array.is_null() || room < items.len() {
        return if items.is_empty() { Ok(()) } else { Err(INSUFFICIENT_SIZE) };
    }
    for (at, item) in items.into_iter().enumerate() {
        // SAFETY: the caller says how many items there is room for.
        unsafe { array.add(at).write(item) };
    }
    Ok(())
}

/// Defines functions that return a number of the state.
macro_rules! numbers {
    ($($function:ident: $name:literal as $type:ty, $unit:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $function(device: usize, value: &mut $type) -> u32 {
            answer(device, stringify!($function), |gpu| {
                *value = (gpu.number($name)? * $unit) as $type;
                Ok(())
            })
        }
    )*};
}

numbers! {
    nvmlDeviceGetPowerUsage: "power" as u32, 1000.0;
    nvmlDeviceGetPowerManagementLimit: "power_limit" as u32, 1000.0;
    nvmlDeviceGetCurrentClocksThrottleReasons: "reasons" as u64, 1.0;
    nvmlDeviceGetEnforcedPowerLimit: "power_limit" as u32, 1000.0;
    nvmlDeviceGetPowerManagementDefaultLimit: "power_default" as u32, 1000.0;
    nvmlDeviceGetCurrPcieLinkGeneration: "pcie_generation" as u32, 1.0;
    nvmlDeviceGetCurrPcieLinkWidth: "pcie_width" as u32, 1.0;
    nvmlDeviceGetMaxPcieLinkGeneration: "pcie_max_generation" as u32, 1.0;
    nvmlDeviceGetMaxPcieLinkWidth: "pcie_max_width" as u32, 1.0;
    nvmlDeviceGetPersistenceMode: "persistence" as u32, 1.0;
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(device: usize, major: &mut i32, minor: &mut i32) -> u32 {
    answer(device, "nvmlDeviceGetCudaComputeCapability", |gpu| {
        (*major, *minor) = (gpu.number("compute_major")? as i32, gpu.number("compute_minor")? as i32);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(device: usize, link: u32, is_active: &mut u32) -> u32 {
    answer(device, "nvmlDeviceGetNvLinkState", |gpu| {
        *is_active = u32::from(f64::from(link) < gpu.number("nvlinks")?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetRemappedRows(
    device: usize,
    corrected: &mut u32,
    uncorrected: &mut u32,
    is_pending: &mut u32,
    has_failed: &mut u32,
) -> u32 {
    answer(device, "nvmlDeviceGetRemappedRows", |gpu| {
        (*corrected, *uncorrected, *has_failed) = (0, 1, 0);
        *is_pending = gpu.number("rows_pending")? as u32;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> u32 {
    script().init
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> u32 {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(buffer: *mut u8, length: u32) -> u32 {
    write(&script().driver, buffer, length).err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: &mut u32) -> u32 {
    *count = u32::try_from(script().whole().count()).unwrap_or(0);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: &mut usize) -> u32 {
    *device = index as usize + 1;
    answer(*device, "nvmlDeviceGetHandleByIndex_v2", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: &mut usize) -> u32 {
    // SAFETY: the caller gives a string that ends with a zero.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_string_lossy();
    let Some(index) = script().gpus.iter().position(|gpu| gpu.uuid == uuid) else { return NOT_FOUND };
    *device = index + 1;
    answer(*device, "nvmlDeviceGetHandleByUUID", |_| Ok(()))
}

/// Returns the text of a code, in the words of the real library.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    let text = match code {
        SUCCESS => c"Success",
        NOT_SUPPORTED => c"Not Supported",
        NOT_FOUND => c"Not Found",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: usize, buffer: *mut u8, length: u32) -> u32 {
    answer(device, "nvmlDeviceGetUUID", |gpu| write(&gpu.uuid, buffer, length))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: usize, buffer: *mut u8, length: u32) -> u32 {
    answer(device, "nvmlDeviceGetName", |gpu| write(&gpu.name, buffer, length))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: usize, pci: &mut Pci) -> u32 {
    answer(device, "nvmlDeviceGetPciInfo_v3", |gpu| {
        *pci = Pci { legacy: [0; 16], domain: 0, bus: gpu.bus, device: 0, ids: [0; 2], bus_id: [0; 32] };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(device: usize, current: &mut u32, pending: &mut u32) -> u32 {
    answer(device, "nvmlDeviceGetMigMode", |gpu| {
        (*current, *pending) = (u32::from(!gpu.instances.is_empty()), 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: usize, count: &mut u32) -> u32 {
    *count = 7;
    answer(device, "nvmlDeviceGetMaxMigDeviceCount", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(device: usize, index: u32, instance: &mut usize) -> u32 {
    answer(device, "nvmlDeviceGetMigDeviceHandleByIndex", |gpu| {
        *instance = gpu.instances.get(index as usize).ok_or(NOT_FOUND)? + 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: usize, parent: &mut usize) -> u32 {
    answer(device, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", |gpu| {
        *parent = gpu.parent.ok_or(INVALID_ARGUMENT)? + 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(device: usize, number: &mut u32) -> u32 {
    answer(device, "nvmlDeviceGetGpuInstanceId", |gpu| {
        let parent = &script().gpus[gpu.parent.ok_or(INVALID_ARGUMENT)?];
        let place = parent.instances.iter().position(|place| *place + 1 == device).ok_or(NOT_FOUND)?;
        *number = u32::try_from(place).unwrap_or(0) + 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(device: usize, memory: &mut Memory) -> u32 {
    answer(device, "nvmlDeviceGetMemoryInfo", |gpu| {
        let (total, used) = (gpu.number("memory_total")? as u64, used(gpu)? + reserved(gpu));
        *memory = Memory { total, free: total - used, used };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: usize, memory: &mut MemoryV2) -> u32 {
    answer(device, "nvmlDeviceGetMemoryInfo_v2", |gpu| {
        let (total, used, reserved) = (gpu.number("memory_total")? as u64, used(gpu)?, reserved(gpu));
        *memory = MemoryV2 { version: memory.version, total, reserved, free: total - used - reserved, used };
        Ok(())
    })
}

/// Returns the memory of the listed processes, plus the script's `memory_other`.
fn used(gpu: &Gpu) -> Told<u64> {
    let own: u64 = gpu
        .processes()
        .unwrap_or_default()
        .iter()
        .map(|(_, bytes, _)| bytes.checked_add(1).map_or(0, |_| *bytes))
        .sum();
    Ok(own + gpu.number("memory_other").unwrap_or(0.0) as u64)
}

fn reserved(gpu: &Gpu) -> u64 {
    gpu.number("memory_reserved").unwrap_or(0.0) as u64
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(device: usize, count: &mut u32, array: *mut Process) -> u32 {
    answer(device, "nvmlDeviceGetComputeRunningProcesses_v3", |gpu| fill(listed(gpu)?, count, array))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(device: usize, count: &mut u32, array: *mut Process) -> u32 {
    answer(device, "nvmlDeviceGetComputeRunningProcesses_v2", |gpu| fill(listed(gpu)?, count, array))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: usize, count: &mut u32, array: *mut Process) -> u32 {
    let clients =
        |gpu: &Gpu| -> Told<Vec<Process>> { Ok(gpu.listed("mps_clients")?.into_iter().map(process).collect()) };
    answer(device, "nvmlDeviceGetMPSComputeRunningProcesses_v3", |gpu| fill(clients(gpu)?, count, array))
}

fn listed(gpu: &Gpu) -> Told<Vec<Process>> {
    Ok(gpu.processes()?.into_iter().map(process).collect())
}

fn process((pid, used, _): (u32, u64, f64)) -> Process {
    Process { pid, used, gpu_instance: u32::MAX, compute_instance: u32::MAX }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetProcessUtilization(
    device: usize,
    array: *mut ProcessShare,
    count: &mut u32,
    since: u64,
) -> u32 {
    answer(device, "nvmlDeviceGetProcessUtilization", |gpu| {
        gpu.get("shares")?;
        let time = script().micros(script().now());
        let busy = gpu.processes()?.into_iter().filter(|(_, _, share)| *share > 0.0 && time > since);
        let share = |(pid, _, share): (u32, u64, f64)| ProcessShare { pid, time, shares: [share as u32, 0, 0, 0] };
        let busy: Vec<ProcessShare> = busy.map(share).collect();
        if busy.is_empty() { Err(NOT_FOUND) } else { fill(busy, count, array) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetSamples(
    device: usize,
    kind: u32,
    since: u64,
    value_kind: &mut u32,
    count: &mut u32,
    array: *mut Sample,
) -> u32 {
    /// NVML takes a sample each 1/6 s.
    const PERIOD: f64 = 1.0 / 6.0;
    answer(device, "nvmlDeviceGetSamples", |gpu| {
        let (name, unit) = match kind {
            0 => ("power_samples", 1000.0),
            1 => ("busy_samples", 1.0),
            _ => return Err(NOT_SUPPORTED),
        };
        gpu.get(name)?;
        *value_kind = gpu.number("value_kind").unwrap_or(1.0) as u32;
        let script = script();
        // A place that was never filled comes first.
        let mut samples = vec![Sample { time: 0, value: 77 }];
        let mut time = PERIOD;
        while time < script.now() {
            let value = gpu.at(name, time).and_then(|value| value.as_f64()).unwrap_or(0.0);
            if script.micros(time) > since {
                samples.push(Sample { time: script.micros(time), value: (value * unit) as u64 });
            }
            time += PERIOD;
        }
        fill(samples, count, array)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(device: usize, shares: &mut Shares) -> u32 {
    answer(device, "nvmlDeviceGetUtilizationRates", |gpu| {
        *shares = Shares { gpu: gpu.number("busy")? as u32, memory: 0 };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEnergyConsumption(device: usize, millijoules: &mut u64) -> u32 {
    answer(device, "nvmlDeviceGetTotalEnergyConsumption", |gpu| {
        gpu.get("energy")?;
        *millijoules = (gpu.sum("energy", script().now())? * 1000.0) as u64;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetClockInfo(device: usize, kind: u32, clock: &mut u32) -> u32 {
    answer(device, "nvmlDeviceGetClockInfo", |gpu| {
        *clock = gpu.number(if kind == 2 { "memory_clock" } else { "sm_clock" })? as u32;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetApplicationsClock(device: usize, kind: u32, clock: &mut u32) -> u32 {
    answer(device, "nvmlDeviceGetApplicationsClock", |gpu| {
        *clock = gpu.number(if kind == 2 { "set_memory_clock" } else { "set_sm_clock" })? as u32;
        Ok(())
    })
}

fn throttled(gpu: &Gpu, name: &str) -> Told<u64> {
    Ok((gpu.sum(name, script().now())? * 1e9) as u64)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(device: usize, count: i32, fields: *mut Field) -> u32 {
    answer(device, "nvmlDeviceGetFieldValues", |gpu| {
        // SAFETY: the caller says how many there are.
        let fields = unsafe { std::slice::from_raw_parts_mut(fields, usize::try_from(count).unwrap_or(0)) };
        for field in fields {
            let told = match field.id {
                74 => throttled(gpu, "power_capped"),
                75 => throttled(gpu, "heat"),
                _ => Err(NOT_SUPPORTED),
            };
            field.kind = gpu.number("value_kind").map_or(3, |kind| kind as u32);
            (field.result, field.value) = told.map_or_else(|code| (code, 0), |value| (SUCCESS, value));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetViolationStatus(device: usize, policy: u32, violation: &mut Violation) -> u32 {
    answer(device, "nvmlDeviceGetViolationStatus", |gpu| {
        let name = if policy == 0 { "power_capped" } else { "heat" };
        *violation = Violation { reference: 0, time: throttled(gpu, name)? };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEccErrors(device: usize, _kind: u32, _counter: u32, count: &mut u64) -> u32 {
    answer(device, "nvmlDeviceGetTotalEccErrors", |gpu| {
        *count = gpu.number("ecc")? as u64;
        Ok(())
    })
}

/// For each set of events: its device, and the number of errors returned.
static EVENTS: Mutex<BTreeMap<usize, (usize, usize)>> = Mutex::new(BTreeMap::new());

fn events<T>(does: impl FnOnce(&mut BTreeMap<usize, (usize, usize)>) -> T) -> T {
    does(&mut EVENTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetCreate(set: &mut usize) -> u32 {
    *set = events(|events| {
        let next = events.last_key_value().map_or(1, |(last, _)| last + 1);
        events.insert(next, (0, 0));
        next
    });
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: usize) -> u32 {
    events(|events| events.remove(&set));
    SUCCESS
}

fn xids(gpu: &Gpu) -> Vec<u64> {
    gpu.get("xids")
        .ok()
        .and_then(|xids| Some(xids.as_array()?.iter().filter_map(|code| code.as_u64()).collect()))
        .unwrap_or_default()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: usize, _kinds: u64, set: usize) -> u32 {
    answer(device, "nvmlDeviceRegisterEvents", |gpu| {
        // Earlier errors are not reported.
        events(|events| events.insert(set, (device, xids(gpu).len())));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(set: usize, data: &mut EventData, _timeout: u32) -> u32 {
    const XID: u64 = 8;
    let (device, told) = events(|events| events.get(&set).copied()).unwrap_or_default();
    answer(device, "nvmlEventSetWait_v2", |gpu| {
        let code = *xids(gpu).get(told).ok_or(TIMEOUT)?;
        events(|events| events.insert(set, (device, told + 1)));
        *data = EventData { device, kind: XID, data: code, instances: [u32::MAX; 2] };
        Ok(())
    })
}
