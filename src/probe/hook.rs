//! Prepares a probe for an adapter's hook: writes the hook's Python files and the settings that the hook applies.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::protocol::Setting;
use super::{Experiment, Job};
use crate::probe::adapter::{self, Apply};

/// The version of `probe.json`.
const VERSION: u32 = 1;

/// The variable with the folders that Python imports from first (its documentation, "Command line and environment").
pub(super) const PYTHONPATH: &str = "PYTHONPATH";

/// The file that the hook reads, because environment variables may be lost on the way to the hook.
#[derive(Serialize)]
struct ProbeFile<'p> {
    version: u32,
    socket: &'p Path,
    trial: u32,
    config: &'p crate::model::Settings,
    adapter: &'p str,
    seed: u64,
    apply: BTreeMap<String, Setting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    experiment: Option<&'p Experiment>,
    #[serde(flatten)]
    asks: Asks,
}

/// Extra tasks of the hook.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Asks {
    /// True if the hook reports the modules that the first process has imported by its first step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) imports: bool,
    /// True if the hook accepts other settings later.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) live: bool,
}

/// Writes the hook below a folder that is removed with the probe. Returns the value of `PYTHONPATH` that loads the hook, in front
/// of `theirs`. Without an adapter the hook sets nothing and counts no steps. It then only guards files, if that is asked for, and
/// silences trackers.
pub(super) fn lay_down(
    scratch: &Path,
    socket: &Path,
    job: &Job<'_>,
    apply: &Apply,
    asks: Asks,
    theirs: Option<OsString>,
) -> io::Result<OsString> {
    let folder: PathBuf = scratch.join("python");
    adapter::install(&folder)?;
    let Some(adapter) = apply.adapter else { return Ok(in_front(folder.into(), theirs)) };
    let probe = ProbeFile {
        version: VERSION,
        socket,
        trial: job.number,
        config: job.settings,
        adapter: adapter.name,
        seed: apply.seed,
        apply: Setting::all(apply.by_hook(job.settings)),
        experiment: job.experiment,
        asks,
    };
    fs::write(folder.join("probe.json"), serde_json::to_vec(&probe)?)?;
    Ok(in_front(folder.into(), theirs))
}

/// An empty entry of `PYTHONPATH` means the working folder, so an empty rest must not add an entry.
fn in_front(mut ours: OsString, theirs: Option<OsString>) -> OsString {
    if let Some(theirs) = theirs.filter(|theirs| !theirs.is_empty()) {
        ours.push(":");
        ours.push(theirs);
    }
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_first_and_an_empty_rest_adds_nothing() {
        assert_eq!(in_front("/a".into(), None), "/a");
        assert_eq!(in_front("/a".into(), Some(OsString::new())), "/a");
        assert_eq!(in_front("/a".into(), Some("/b::/c".into())), "/a:/b::/c");
    }
}
