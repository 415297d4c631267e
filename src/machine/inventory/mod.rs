//! Describes the machine for a training job: GPUs, driver, cores, memory, disk, and their problems.
//!
//! `docs/device.md` describes the output of `gputune device`, and `docs/design/json.md` its JSON.

#[cfg(feature = "cuda")]
mod cuda;
mod hardware;
mod host;
mod nvml;
mod warnings;

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;

pub use hardware::Hardware;
pub use host::{Disk, Host, Processors};
pub use warnings::{BUSY, RULES, Rule, Warning};

use crate::machine::telemetry::{Device, GpuFacts};

/// The version of the JSON; it is raised when a member changes its meaning or is removed.
pub const FORMAT: u32 = 1;

/// The description of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Machine {
    /// The version of this format, [`FORMAT`].
    pub format: u32,
    /// The GPUs and MIG instances.
    pub gpus: Vec<GpuFacts>,
    /// The version of the GPU driver.
    pub driver: Option<String>,
    /// The version of CUDA that the driver supports.
    pub cuda: Option<String>,
    /// The libraries that gputune itself uses on GPUs.
    pub libraries: Vec<Library>,
    /// CPUs, memory, disk.
    pub host: Host,
    /// Problems, with remedies.
    pub warnings: Vec<Warning>,
}

/// A library that gputune looks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Library {
    /// Its name.
    pub name: &'static str,
    /// Why it cannot be used; `None` if it can be used.
    pub absent: Option<String>,
    /// The remedy, if known.
    pub cure: Option<String>,
}

impl Machine {
    /// Describes the machine. Changes no settings and takes no device memory. `out` is the folder for results.
    pub fn look(out: &Path) -> Self {
        let mut machine = patiently(look_at_gpus).unwrap_or_else(|| Self {
            libraries: vec![Library {
                name: "driver",
                absent: Some("it does not answer".to_owned()),
                cure: Some("look into the kernel's log with `dmesg`; a GPU that is lost needs a restart".to_owned()),
            }],
            ..Self::default()
        });
        nvml::add_dcgm(&mut machine.gpus);
        machine.format = FORMAT;
        machine.host = Host::look(out);
        machine.warnings = warnings::of(&machine);
        machine
    }

    /// Returns the key of stored ceilings besides the GPU: the driver's version, or else its CUDA version.
    pub fn driver_key(&self) -> String {
        let cuda = || self.cuda.as_ref().map(|version| format!("cuda-{version}"));
        self.driver.clone().or_else(cuda).unwrap_or_else(|| "unknown".to_owned())
    }

    /// Returns why no GPU can be used, in one line, with a remedy; `None` if a GPU can be used.
    pub fn without_gpu(&self) -> Option<(String, Option<String>)> {
        if self.gpus.iter().any(|gpu| gpu.is_visible) {
            return None;
        }
        if !self.gpus.is_empty() {
            let cure = Some("look at CUDA_VISIBLE_DEVICES".to_owned());
            return Some(("none of the GPUs is visible to programs".to_owned(), cure));
        }
        // CUDA's own message is the most informative.
        let missing = || self.libraries.iter().filter(|library| library.absent.is_some());
        let library = missing().find(|library| library.name.starts_with("libcuda")).or_else(|| missing().next());
        Some(library.map_or(("no GPU was found".to_owned(), None), |library| {
            (library.absent.clone().unwrap_or_default(), library.cure.clone())
        }))
    }
}

/// Queries a driver, but gives up if it hangs; the thread then stays behind.
fn patiently<T: Send + 'static>(ask: fn() -> T) -> Option<T> {
    // Without persistence, a driver starts all GPUs at its first query.
    const PATIENCE: Duration = Duration::from_secs(45);
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().name("driver".to_owned()).spawn(move || drop(sender.send(ask()))).ok()?;
    receiver.recv_timeout(PATIENCE).ok()
}

/// Returns the GPUs that programs see, with only the facts that CUDA reports at once. NVML's meters take longer. They are
/// queried only if CUDA shows nothing, for example if only the step's container may use the GPUs.
fn visible_gpus() -> Vec<GpuFacts> {
    let mut machine = Machine::default();
    #[cfg(feature = "cuda")]
    cuda::add_devices(&mut machine);
    if machine.gpus.is_empty() {
        nvml::add(&mut machine);
    }
    machine.gpus
}

fn look_at_gpus() -> Machine {
    let mut machine = Machine::default();
    nvml::add(&mut machine);
    #[cfg(feature = "cuda")]
    cuda::add(&mut machine);
    #[cfg(not(feature = "cuda"))]
    machine.libraries.push(Library {
        name: "CUDA",
        absent: Some("this gputune was built without CUDA".to_owned()),
        cure: Some("build it with the feature `cuda`".to_owned()),
    });
    let kernel = Device::detect();
    if machine.driver.is_none() && kernel.is_gpu {
        machine.driver = Some(kernel.driver);
    }
    machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_can_be_looked_at_whatever_it_has() {
        let machine = Machine::look(Path::new("."));
        assert_eq!(machine.format, FORMAT);
        assert!(machine.host.processors.usable > 0);
        assert_eq!(machine.gpus.is_empty(), machine.without_gpu().is_some() && machine.gpus.is_empty());
        let json = serde_json::to_value(&machine).unwrap();
        for member in ["format", "gpus", "driver", "cuda", "libraries", "host", "warnings"] {
            assert!(json.get(member).is_some(), "{member}");
        }
    }

    #[test]
    fn a_driver_that_hangs_is_given_up() {
        assert_eq!(patiently(|| 3), Some(3));
    }
}
