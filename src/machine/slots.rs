//! Divides the machine into slots: GPUs, whole cores near them, and shares of the memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::inventory::Processors;
use super::process_table::{allowed_processors, numbers};
use super::telemetry::{GpuMeter, HostMemory, VISIBLE_GPUS, nvml::Visible};
use crate::model::Slot;

/// The requested division of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shares {
    /// The number of slots. If it is `None`, as many as fit with `gpus` and `cores`; one slot if all three are `None`.
    pub slots: Option<u32>,
    /// GPUs of each slot; `None` for an equal share.
    pub gpus: Option<u32>,
    /// Physical cores of each slot; `None` for an equal share of the cores that are not kept for gputune.
    pub cores: Option<u32>,
    /// Selects only GPUs whose model contains this string, ignoring case.
    pub only: Option<String>,
}

/// The error for a machine that cannot be divided as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharesError {
    /// There are too few cores: the slots, the cores of each, and the available cores.
    #[error("{0} slots of {1} physical cores each do not fit: this process may use {2}")]
    TooFewCores(u32, u32, usize),
    /// There are too few GPUs: the slots, the GPUs of each, and the visible GPUs.
    #[error("{0} slots of {1} GPUs each do not fit: {2} can be seen")]
    TooFewGpus(u32, u32, usize),
    /// The GPUs are of several models; a measurement on one model says nothing about another.
    #[error("these GPUs are not all of one model: {}", .0.join(", "))]
    Mixed(Vec<String>),
    /// The kernel does not list the cores.
    #[error("the kernel does not list the CPUs that this process may use")]
    NoCores,
}

impl SharesError {
    /// Returns the remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooFewCores { .. } => "take fewer `slots`, or fewer `cores_per_slot`, in [machine]",
            Self::TooFewGpus { .. } => "take fewer `slots`, or fewer `gpus_per_slot`, in [machine]",
            Self::Mixed { .. } => "name the model to search on in [machine], such as only = \"H100\"",
            Self::NoCores => "is /proc mounted? Without it leave [machine] out",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NearGpu {
    uuid: String,
    name: String,
    /// The CPUs near the GPU, as the bus reports them; empty if unknown.
    processors: BTreeSet<u32>,
}

/// A physical core: the logical CPUs that share it.
type Core = Vec<u32>;

impl Shares {
    /// Returns true if the GPUs or cores of a slot are stated; otherwise a slot may be the whole machine.
    pub fn has_shape(&self) -> bool {
        self.gpus.is_some() || self.cores.is_some()
    }

    /// Divides the part of this machine that this process may use. Returns no slots if the machine stays whole.
    ///
    /// A slot gets whole cores with all their hardware threads, first the cores on the NUMA node of its GPUs. Parallel
    /// measurements need this (Beyer, Loewe, Wendler, "Reliable benchmarking: requirements and solutions", STTT 21,
    /// 2019). gputune keeps one core for itself if there are at least 8 physical cores, and two if there are at least
    /// 32, unless the stated `slots` and `cores` need them. Under a CPU quota no core is bound, unless the number of
    /// cores is stated.
    ///
    /// # Errors
    /// The machine cannot be divided as requested.
    pub fn divide(&self, is_gpu: bool) -> Result<Vec<Slot>, SharesError> {
        if *self == Self::default() || (self.slots == Some(1) && self.gpus.is_none() && self.cores.is_none()) {
            return Ok(Vec::new());
        }
        let allowed = allowed_processors("self").unwrap_or_default();
        let cores = physical(Path::new("/sys/devices/system/cpu"), &allowed);
        let mut gpus = if is_gpu || self.gpus.is_some() {
            gpus(Path::new("/proc/driver/nvidia/gpus"), Path::new("/sys/bus/pci/devices"))
        } else {
            Vec::new()
        };
        if let Some(only) = self.only.as_ref().map(|only| only.to_lowercase()) {
            gpus.retain(|gpu| gpu.name.to_lowercase().contains(&only));
        }
        let memory = HostMemory::read().map(|memory| memory.total_bytes);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let slots = self.of(&cores, &gpus)?;
        let share = memory.and_then(|bytes| bytes.checked_div(slots.len() as u64));
        // A quota, as in containers, limits CPU time and not the cores: other programs may be bound to the same cores.
        let has_quota = self.cores.is_none() && Processors::look().has_quota();
        let finished = |slot: Slot| {
            let cores = if has_quota { Vec::new() } else { slot.cores };
            Slot { host: host.clone(), memory_bytes: share, cores, ..slot }
        };
        Ok(slots.into_iter().map(finished).collect())
    }

    fn of(&self, cores: &[Core], gpus: &[NearGpu]) -> Result<Vec<Slot>, SharesError> {
        if cores.is_empty() {
            return Err(SharesError::NoCores);
        }
        let names: BTreeSet<&String> = gpus.iter().map(|gpu| &gpu.name).collect();
        if names.len() > 1 {
            return Err(SharesError::Mixed(names.into_iter().cloned().collect()));
        }
        let count = |items: usize| u32::try_from(items).unwrap_or(u32::MAX);
        let kept = match cores.len() {
            0..8 => 0,
            8..32 => 1,
            _ => 2,
        };
        let usable = count(cores.len()) - kept;
        let fit = |all: u32, each: Option<u32>| each.filter(|each| *each > 0).map(|each| all / each);
        let by_shares = fit(usable, self.cores).into_iter().chain(fit(count(gpus.len()), self.gpus)).min();
        let slots = self.slots.or(by_shares).unwrap_or(1).max(1);
        let gpus_each = self.gpus.unwrap_or(count(gpus.len()) / slots);
        let has_none = gpus_each == 0 && (!gpus.is_empty() || self.only.is_some());
        if u64::from(gpus_each) * u64::from(slots) > gpus.len() as u64 || has_none {
            return Err(SharesError::TooFewGpus(slots, gpus_each.max(1), gpus.len()));
        }
        // If there are fewer cores than slots, no core is bound.
        let cores_each = self.cores.unwrap_or(usable / slots);
        if u64::from(cores_each) * u64::from(slots) > cores.len() as u64 {
            return Err(SharesError::TooFewCores(slots, cores_each, cores.len()));
        }
        let mut gpus = gpus.iter();
        // Slots take cores in order, cores near their GPUs first. So the last cores are kept for gputune.
        let mut free: Vec<&Core> = cores.iter().collect();
        let slot = |number: u32| {
            let own: Vec<&NearGpu> = gpus.by_ref().take(gpus_each as usize).collect();
            let is_near = |core: &Core| own.iter().any(|gpu| core.iter().any(|at| gpu.processors.contains(at)));
            free.sort_by_key(|core| !is_near(core));
            let mut bound: Vec<u32> = free.drain(..cores_each as usize).flatten().copied().collect();
            bound.sort_unstable();
            Slot { gpus: own.iter().map(|gpu| gpu.uuid.clone()).collect(), cores: bound, ..Slot::numbered(number) }
        };
        Ok((1..=slots).map(slot).collect())
    }
}

/// Returns the GPUs that this process sees, each with the CPUs on its NUMA node.
///
/// The kernel module lists GPUs by bus address, with their UUID (`/proc/driver/nvidia/gpus/*/information`). sysfs lists the CPUs
/// near a bus address (kernel documentation, `ABI/testing/sysfs-bus-pci`, `local_cpulist`).
fn gpus(module: &Path, bus: &Path) -> Vec<NearGpu> {
    let Ok(meter) = GpuMeter::shared() else { return named_gpus() };
    let seen = meter.read(&Visible::default()).map(|state| state.gpus).unwrap_or_default();
    let known = meter.gpus().unwrap_or_default().into_iter().filter(|gpu| seen.iter().any(|it| it.uuid == gpu.uuid));
    let near = |uuid: &str| near(module, bus, uuid).unwrap_or_default();
    known.map(|gpu| NearGpu { processors: near(&gpu.uuid), uuid: gpu.uuid, name: gpu.name }).collect()
}

/// Returns the GPUs that the environment names, if the driver's library is not available.
fn named_gpus() -> Vec<NearGpu> {
    let names = std::env::var(VISIBLE_GPUS).unwrap_or_default();
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    let gpu = |name: &str| NearGpu { uuid: name.to_owned(), name: "GPU".to_owned(), processors: BTreeSet::new() };
    names.map(gpu).collect()
}

fn near(module: &Path, bus: &Path, uuid: &str) -> Option<BTreeSet<u32>> {
    let mut entries = fs::read_dir(module).ok()?.flatten();
    let is_it = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("information")).is_ok_and(|text| text.contains(uuid))
    };
    let address = entries.find(is_it)?.file_name();
    Some(numbers(&fs::read_to_string(bus.join(address).join("local_cpulist")).ok()?))
}

/// Returns the physical cores with their allowed CPUs, in order (kernel documentation, `admin-guide/cputopology.rst`).
fn physical(folder: &Path, allowed: &BTreeSet<u32>) -> Vec<Core> {
    let mut cores: BTreeMap<u32, Core> = BTreeMap::new();
    for &processor in allowed {
        let list = folder.join(format!("cpu{processor}/topology/thread_siblings_list"));
        let siblings = fs::read_to_string(list).map(|list| numbers(&list)).unwrap_or_default();
        let first = siblings.iter().next().copied().unwrap_or(processor);
        cores.entry(first).or_default().push(processor);
    }
    let mut cores: Vec<Core> = cores.into_values().collect();
    cores.sort();
    cores
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::write;

    fn cores(count: u32) -> Vec<Core> {
        (0..count).map(|core| vec![core, core + count]).collect()
    }

    fn gpu(uuid: &str, processors: std::ops::Range<u32>) -> NearGpu {
        NearGpu { uuid: uuid.to_owned(), name: "NVIDIA H100".to_owned(), processors: processors.collect() }
    }

    fn bound(slots: &[Slot]) -> Vec<(Vec<u32>, usize)> {
        slots.iter().map(|slot| (slot.cores.clone(), slot.gpus.len())).collect()
    }

    #[test]
    fn cores_are_whole_and_no_two_slots_share_one() {
        let two = Shares { slots: Some(2), ..Shares::default() };
        assert_eq!(bound(&two.of(&cores(4), &[]).unwrap()), [(vec![0, 1, 4, 5], 0), (vec![2, 3, 6, 7], 0)]);
        let slots = two.of(&cores(9), &[]).unwrap();
        assert_eq!(slots.iter().map(|slot| slot.cores.len()).sum::<usize>(), 16, "one core is kept");
    }

    #[test]
    fn cores_near_the_gpu_come_first() {
        let gpus = [gpu("GPU-a", 4..8), gpu("GPU-b", 0..4)];
        let shares = Shares { gpus: Some(1), cores: Some(2), ..Shares::default() };
        let single: Vec<Core> = (0..8).map(|core| vec![core]).collect();
        assert_eq!(bound(&shares.of(&single, &gpus).unwrap()), [(vec![4, 5], 1), (vec![0, 1], 1)]);
    }

    #[test]
    fn as_many_as_fit_where_only_the_shares_are_stated() {
        let shares = Shares { cores: Some(3), ..Shares::default() };
        assert_eq!(shares.of(&cores(7), &[]).unwrap().len(), 2);
        let shares = Shares { gpus: Some(2), ..Shares::default() };
        let gpus: Vec<NearGpu> = (0..5).map(|at| gpu(&format!("GPU-{at}"), 0..0)).collect();
        assert_eq!(shares.of(&cores(7), &gpus).unwrap().len(), 2);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let shares = |slots, gpus, cores| Shares { slots: Some(slots), gpus, cores, only: None };
        let error = |shares: Shares, gpus: &[NearGpu]| shares.of(&cores(2), gpus).unwrap_err().to_string();
        assert!(error(shares(3, None, Some(1)), &[]).contains("3 slots of 1 physical cores each do not fit"));
        let unbound = shares(3, None, None).of(&cores(2), &[]).unwrap();
        assert!(unbound.len() == 3 && unbound.iter().all(|slot| slot.cores.is_empty()));
        assert!(error(shares(2, None, None), &[gpu("GPU-a", 0..1)]).contains("2 slots of 1 GPUs each do not fit: 1"));
        assert_eq!(Shares::default().divide(false), Ok(Vec::new()));
        let other = NearGpu { name: "NVIDIA A100".to_owned(), ..gpu("GPU-b", 0..1) };
        let mixed = error(shares(2, None, None), &[gpu("GPU-a", 0..1), other]);
        assert_eq!(mixed, "these GPUs are not all of one model: NVIDIA A100, NVIDIA H100");
    }

    #[test]
    fn the_bus_tells_what_is_near_a_gpu() {
        let folder = tempfile::tempdir().unwrap();
        let (module, bus) = (folder.path().join("gpus"), folder.path().join("bus"));
        write(&module, "0000:3b:00.0/information", "Model: X\nGPU UUID: GPU-a1\n");
        write(&bus, "0000:3b:00.0/local_cpulist", "8-9\n");
        assert_eq!(near(&module, &bus, "GPU-a1"), Some(BTreeSet::from([8, 9])));
        assert_eq!(near(&module, &bus, "GPU-b2"), None);
    }

    #[test]
    fn siblings_are_one_core() {
        let folder = tempfile::tempdir().unwrap();
        for (processor, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            write(folder.path(), &format!("cpu{processor}/topology/thread_siblings_list"), siblings);
        }
        assert_eq!(physical(folder.path(), &numbers("0-3\n")), [vec![0, 2], vec![1, 3]]);
        assert_eq!(physical(folder.path(), &numbers("1,2")), [vec![1], vec![2]]);
        assert_eq!(physical(Path::new("/nowhere"), &numbers("0-1")), [vec![0], vec![1]]);
    }
}
