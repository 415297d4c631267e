//! Warns of conditions that may slow training down on this machine, with remedies.

use serde::Serialize;

use super::{Host, Machine};
use crate::machine::telemetry::{GpuFacts, Holder, Mig};
use crate::model::quantity::{show_bytes, show_number};

const GIB: u64 = 1 << 30;
/// A GPU counts as busy if a kernel runs on it for more than this share of the time: a round number.
pub const BUSY: f64 = 0.1;

/// A condition that may slow training down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The name of the [`Rule`] that gave the warning.
    pub rule: &'static str,
    /// The problem, with numbers.
    pub message: String,
    /// The remedy.
    pub cure: &'static str,
}

/// A rule for warnings.
#[derive(Debug)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// The condition that it checks, and the source of its threshold.
    pub about: &'static str,
    /// The remedy.
    pub cure: &'static str,
    check: Check,
}

#[derive(Debug)]
enum Check {
    Host(fn(&Host) -> Option<String>),
    /// Checks each GPU that `CUDA_VISIBLE_DEVICES` shows to programs.
    Gpu(fn(&GpuFacts, &Host) -> Option<String>),
    /// Checks each GPU, also a hidden GPU.
    AnyGpu(fn(&GpuFacts) -> Option<String>),
}

/// All rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "shm_small",
        about: "`/dev/shm` below 1 GiB: loader workers hand over batches there, and containers get 64 MiB unless told otherwise (Docker, `--shm-size`)",
        cure: "start the container with --shm-size=8g or --ipc=host, or enlarge it: mount -o remount,size=8G /dev/shm",
        check: Check::Host(|host| {
            let total = host.shared_memory_bytes.filter(|&total| total < GIB)?;
            Some(format!("/dev/shm has {}", show_bytes(total)))
        }),
    },
    Rule {
        name: "shm_full",
        about: "`/dev/shm` more than 90 % full",
        cure: "delete what ended jobs left there (torch_*, nccl-*, psm_*)",
        check: Check::Host(|host| {
            let (total, free) = (host.shared_memory_bytes?, host.shared_memory_free_bytes?);
            let is_full = total > 0 && free.saturating_mul(10) < total;
            is_full.then(|| format!("/dev/shm has {} of {} free", show_bytes(free), show_bytes(total)))
        }),
    },
    Rule {
        name: "power_capped",
        about: "a power limit more than 1 % below the GPU's default",
        cure: "as root: nvidia-smi -i GPU -pl WATTS, unless the limit is meant",
        check: Check::Gpu(|gpu, _| {
            let (limit, default) = (gpu.power?.limit_watts?, gpu.power?.default_limit_watts?);
            let (now, usual) = (show_number(limit), show_number(default));
            (limit < default * 0.99).then(|| format!("is limited to {now} W, by default to {usual} W"))
        }),
    },
    Rule {
        name: "pcie_narrow",
        about: "fewer PCIe lanes than GPU and slot have; unlike the generation, lanes do not go down when the link is idle. Not in virtual machines, which show the lanes of an emulated bridge",
        cure: "seat the card anew, and look at riser and BIOS",
        check: Check::Gpu(|gpu, host| {
            let pcie = gpu.pcie.filter(|_| !host.is_virtual)?;
            let (now, most) = (pcie.width?, pcie.max_width?);
            (now < most).then(|| format!("has {now} of {most} PCIe lanes"))
        }),
    },
    Rule {
        name: "pcie_slow",
        about: "a lower PCIe generation than GPU and slot have, while the GPU is busy; idle links slow down, so an idle GPU gives no warning",
        cure: "look at the BIOS and at the riser; lspci -vv tells the slot's speed",
        check: Check::Gpu(|gpu, _| {
            let pcie = gpu.pcie.filter(|_| gpu.busy.is_some_and(|busy| busy > BUSY))?;
            let (now, most) = (pcie.generation?, pcie.max_generation?);
            (now < most).then(|| format!("runs PCIe generation {now} of {most} while it is busy"))
        }),
    },
    Rule {
        name: "persistence_off",
        about: "persistence mode off: the driver is loaded anew for each job, which takes seconds",
        cure: "as root: nvidia-smi -pm 1, or start nvidia-persistenced",
        check: Check::Gpu(|gpu, _| {
            let is_off = gpu.persistence == Some(false);
            is_off.then(|| "has persistence mode off: each job loads the driver anew".to_owned())
        }),
    },
    Rule {
        name: "foreign_process",
        about: "another process computes on the GPU",
        cure: "end it, or leave this GPU out with CUDA_VISIBLE_DEVICES: it makes measurements unreliable",
        check: Check::Gpu(|gpu, _| {
            let others = gpu.processes.as_ref().filter(|others| !others.is_empty())?;
            let names: Vec<String> = others.iter().take(3).map(holder).collect();
            let more = others.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Some(format!("is used by {}{more}", names.join(", ")))
        }),
    },
    Rule {
        name: "rows_pending",
        about: "rows of device memory wait for a restart of the GPU to be replaced",
        cure: "restart the machine, or reset the GPU while no process uses it",
        check: Check::Gpu(|gpu, _| {
            gpu.remapped_rows?.is_pending.then(|| "has memory rows that wait to be replaced".to_owned())
        }),
    },
    Rule {
        name: "rows_failed",
        about: "rows of device memory cannot be replaced any more",
        cure: "have the card exchanged",
        check: Check::Gpu(|gpu, _| {
            gpu.remapped_rows?.has_failed.then(|| "has memory rows that cannot be replaced".to_owned())
        }),
    },
    Rule {
        name: "mig_without_instances",
        about: "MIG is on, and there is no instance to compute on",
        cure: "as root: nvidia-smi mig -cgi PROFILE -C, or nvidia-smi -mig 0",
        check: Check::AnyGpu(|gpu| {
            let is_divided = gpu.mig == Some(Mig::WithoutInstances);
            is_divided.then(|| "is in MIG mode without an instance".to_owned())
        }),
    },
    Rule {
        name: "memory_low",
        about: "less than 4 GiB, or less than a tenth, of the memory available: a loader's workers and the page cache need it",
        cure: "end other programs, or raise the container's limit",
        check: Check::Host(|host| {
            let (total, free) = (host.memory_bytes?, host.memory_available_bytes?);
            let is_low = free < 4 * GIB || free.saturating_mul(10) < total;
            is_low.then(|| format!("{} of {} memory can be had", show_bytes(free), show_bytes(total)))
        }),
    },
    Rule {
        name: "quota_below_cores",
        about: "a processor quota below the cores that programs see: whoever starts a thread for each core is held back",
        cure: "give the container more (--cpus), and keep workers and OMP_NUM_THREADS within the quota",
        check: Check::Host(|host| {
            let quota = host.processors.quota.filter(|_| host.processors.has_quota())?;
            Some(format!("the quota allows {} of the {} cores", show_number(quota), host.processors.usable))
        }),
    },
    Rule {
        name: "disk_full",
        about: "less than 1 GiB free where results are written",
        cure: "make room, or choose another folder with --out",
        check: Check::Host(|host| {
            let disk = host.disk.as_ref().filter(|disk| disk.free_bytes < GIB)?;
            Some(format!("{} free for {}", show_bytes(disk.free_bytes), disk.folder.display()))
        }),
    },
];

impl Check {
    fn find(&self, machine: &Machine) -> Vec<String> {
        let each = |find: &dyn Fn(&GpuFacts) -> Option<String>| -> Vec<String> {
            machine.gpus.iter().filter_map(|gpu| Some(format!("{} {}", gpu.place(), find(gpu)?))).collect()
        };
        match self {
            Self::Host(find) => find(&machine.host).into_iter().collect(),
            Self::Gpu(find) => each(&|gpu: &GpuFacts| find(gpu, &machine.host).filter(|_| gpu.is_visible)),
            Self::AnyGpu(find) => each(find),
        }
    }
}

fn holder(holder: &Holder) -> String {
    let name = holder.name.as_deref().map_or(String::new(), |name| format!(" {name}"));
    let memory = holder.memory_bytes.map_or(String::new(), |bytes| format!(" ({})", show_bytes(bytes)));
    format!("process {}{name}{memory}", holder.pid)
}

pub(super) fn of(machine: &Machine) -> Vec<Warning> {
    let found = |rule: &'static Rule| {
        let messages = rule.check.find(machine).into_iter();
        messages.map(|message| Warning { rule: rule.name, message, cure: rule.cure })
    };
    RULES.iter().flat_map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::telemetry::{Pcie, Power, RemappedRows};
    use crate::machine::{Disk, Processors};

    fn troubled() -> Machine {
        let gpu = GpuFacts {
            index: Some(0),
            is_visible: true,
            power: Some(Power { now_watts: Some(90.0), limit_watts: Some(350.0), default_limit_watts: Some(700.0) }),
            pcie: Some(Pcie { generation: Some(1), width: Some(8), max_generation: Some(5), max_width: Some(16) }),
            busy: Some(0.9),
            persistence: Some(false),
            processes: Some(vec![Holder { pid: 7, name: Some("python".to_owned()), memory_bytes: Some(GIB) }]),
            remapped_rows: Some(RemappedRows { is_pending: true, has_failed: true }),
            mig: Some(Mig::WithoutInstances),
            ..GpuFacts::default()
        };
        let host = Host {
            processors: Processors { usable: 8, online: 8, quota: Some(1.5), model: None },
            memory_bytes: Some(64 * GIB),
            memory_available_bytes: Some(3 * GIB),
            shared_memory_bytes: Some(64 << 20),
            shared_memory_free_bytes: Some(1 << 20),
            disk: Some(Disk { folder: "out".into(), total_bytes: GIB, free_bytes: 1 << 20 }),
            ..Host::default()
        };
        Machine { gpus: vec![gpu], host, ..Machine::default() }
    }

    #[test]
    fn every_rule_can_fire_and_says_what_helps() {
        let warnings = of(&troubled());
        for rule in RULES {
            let found = warnings.iter().find(|warning| warning.rule == rule.name);
            let warning = found.unwrap_or_else(|| panic!("{} does not fire", rule.name));
            assert!(!warning.message.contains('\n') && !warning.cure.is_empty() && !rule.about.is_empty());
        }
        let of_rule = |name| warnings.iter().find(|warning| warning.rule == name).unwrap().message.clone();
        assert_eq!(of_rule("foreign_process"), "GPU 0 is used by process 7 python (1.00 GiB)");
        assert_eq!(of_rule("power_capped"), "GPU 0 is limited to 350 W, by default to 700 W");
        assert_eq!(of_rule("pcie_slow"), "GPU 0 runs PCIe generation 1 of 5 while it is busy");
    }

    #[test]
    fn what_is_unknown_and_what_is_idle_gives_no_warning() {
        assert_eq!(of(&Machine::default()), []);
        let mut machine = troubled();
        machine.host.is_virtual = true;
        let fires = |machine: &Machine, rule: &str| of(machine).iter().any(|warning| warning.rule == rule);
        assert!(!fires(&machine, "pcie_narrow"));
        machine.gpus[0].busy = Some(0.0);
        assert!(!fires(&machine, "pcie_slow"));
        machine.gpus[0].is_visible = false;
        let of_gpu = of(&machine).into_iter().filter(|warning| warning.message.contains("GPU 0"));
        let of_gpu: Vec<&str> = of_gpu.map(|warning| warning.rule).collect();
        assert_eq!(of_gpu, ["mig_without_instances"], "no program sees such a GPU");
    }

    #[test]
    fn the_docs_name_every_rule() {
        let docs = include_str!("../../../docs/device.md");
        for rule in RULES {
            assert!(docs.contains(&format!("| `{}` |", rule.name)), "{}", rule.name);
        }
    }
}
