//! Applies settings to unmodified training scripts: adapters, the targets of `apply`, and the way to set each target.
//!
//! A parameter with `apply = "TARGET"` needs no support from the script. gputune itself sets some targets before the
//! process starts. The hook of an adapter sets the other targets: Python code that is loaded with the script's
//! framework.

mod apply;
mod by_hand;
mod target;
mod targets;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use apply::{Applied, Apply};
pub(crate) use by_hand::has_graphs;
pub use by_hand::{Arguments, ByHand, Line, Names, OwnCall, Spot, python as python_literal};
pub use target::{Accepts, By, Needs, Numerics, Target};
pub use targets::{TARGETS, TargetError};

/// A way to reach into an unmodified script.
#[derive(Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Its name in `[step]`.
    pub name: &'static str,
    /// Its effect, in one line.
    pub about: &'static str,
    /// The things to check if its hook never reported.
    pub when_silent: &'static str,
}

/// The adapters, by name.
pub const ADAPTERS: &[Adapter] = &[Adapter {
    name: "torch",
    about: "a hook in every process that imports torch: counts steps and samples, sets what `apply` names",
    when_silent: "does the script import torch and train a module with it? The hook comes in by \
                  PYTHONPATH, which `python -I` and `-E`, sudo, containers and ssh leave out",
}];

/// Returns the adapter with this name.
pub fn adapter(name: &str) -> Option<&'static Adapter> {
    ADAPTERS.iter().find(|adapter| adapter.name == name)
}

/// The files of the repository's `python/gputune` and `python/hook`, by their path below `python/`, and their texts.
/// `build.rs` writes the list.
pub const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/python_files.rs"));

/// Returns the path of the script that starts a zygote, a process to fork from, below a folder that [`install`] wrote.
pub(in crate::probe) fn start_zygote(folder: &Path) -> PathBuf {
    folder.join("start_zygote.py")
}

/// Writes the package and its hook below a folder that must come first on `PYTHONPATH`.
///
/// # Errors
/// A file cannot be written.
pub fn install(folder: &Path) -> io::Result<()> {
    // The hook's own distribution (Python's packaging user guide, "Entry points specification"), next to the package's.
    let version = env!("CARGO_PKG_VERSION");
    let distribution = folder.join(format!("gputune_hook-{version}.dist-info"));
    for (path, text) in FILES {
        let target = match path.strip_prefix("hook/") {
            // Torch 2.5 or later loads this entry point. Python itself reads `sitecustomize.py` at start-up.
            Some("entry_points.txt") => distribution.join("entry_points.txt"),
            Some(name) => folder.join(name),
            None => folder.join(path),
        };
        write(&target, text)?;
    }
    write(&distribution.join("METADATA"), &format!("Metadata-Version: 2.1\nName: gputune-hook\nVersion: {version}\n"))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_target_has_its_adapter() {
        for target in TARGETS {
            if let By::Hook { adapter: name, .. } = target.by {
                assert!(adapter(name).is_some(), "{}", target.name);
            }
        }
        assert_eq!(adapter("pytorch"), None);
    }

    #[test]
    fn the_package_has_the_version_of_the_binary() {
        let version = format!("__version__ = \"{}\"\n", env!("CARGO_PKG_VERSION"));
        assert!(FILES.iter().any(|(_, text)| text.contains(&version)));
    }
}
