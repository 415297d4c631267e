//! The stand-in for NVIDIA's management library, in its own folder, with a script for its answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

/// The name by which a program looks for the library.
const NAME: &str = "libnvidia-ml.so.1";

/// A library that answers as a script says.
pub(crate) struct StandIn {
    pub(crate) folder: tempfile::TempDir,
}

impl StandIn {
    /// Returns a library with this script.
    pub(crate) fn of(script: &Value) -> Self {
        Self::without(&[], script)
    }

    /// Returns a library that lacks some functions: their names are changed in a copy, so that the loader does not find them.
    pub(crate) fn without(missing: &[&str], script: &Value) -> Self {
        static LIBRARY: LazyLock<Vec<u8>> =
            LazyLock::new(|| fs::read(super::example("stand_in_nvml", "libstand_in_nvml.so")).unwrap());
        let mut library = LIBRARY.clone();
        hide(missing, &mut library);
        let stand_in = Self::broken(&library);
        fs::write(stand_in.path("script.json"), script.to_string()).unwrap();
        stand_in
    }

    /// Puts a file in the library's place.
    pub(crate) fn broken(bytes: &[u8]) -> Self {
        let stand_in = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(stand_in.place(), bytes).unwrap();
        stand_in
    }

    pub(crate) fn place(&self) -> PathBuf {
        self.path(NAME)
    }

    /// Returns the path of a file next to the library.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Lets a program find the library.
    pub(crate) fn before<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("LD_LIBRARY_PATH", self.folder.path()).env("STAND_IN_NVML", self.path("script.json"))
    }
}

/// Changes the names of functions in a library, so that the loader does not find them.
fn hide(functions: &[&str], library: &mut [u8]) {
    for name in functions {
        let name = [b"\0", name.as_bytes(), b"\0"].concat();
        let places: Vec<usize> =
            library.windows(name.len()).enumerate().filter(|(_, bytes)| *bytes == name).map(|(at, _)| at).collect();
        assert!(!places.is_empty(), "the stand-in has no {name:?}");
        places.into_iter().for_each(|at| library[at + 1] = b'x');
    }
}

/// Returns a Hopper GPU that answers everything. A process that has written its number to a file computes on it.
pub(crate) fn hopper(pid_file: &Path) -> Value {
    json!({
        "uuid": "GPU-a1", "name": "NVIDIA H200",
        "state": {
            "memory_total": 150e9, "memory_reserved": 1e9, "memory_other": 3e6,
            "processes": [{ "pid_file": pid_file, "bytes": 40e9, "share": 90 }], "shares": true,
            "power": 512, "energy": 500, "power_samples": 512, "power_limit": 700,
            "busy": 97, "busy_samples": 97,
            "sm_clock": 1755, "memory_clock": 2619, "set_sm_clock": 1980, "set_memory_clock": 2619,
            "reasons": 0, "power_capped": 0, "heat": 0, "ecc": 0, "xids": [],
            "sm": 62, "occupancy": 31, "tensor": 40, "dram": 35,
            "pcie_received": 1000, "pcie_sent": 10, "nvlink_received": 0, "nvlink_sent": 0
        }
    })
}
