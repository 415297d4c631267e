//! Writes the hook's Python files, and the settings that the hook applies, for a probe or a run that is not measured.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::protocol::{self, Setting};
use super::scratch::write_whole;
use super::template::StepTemplate;
use super::{Experiment, Job};
use crate::model::{Settings, Space};
use crate::probe::adapter::{self, Adapter, Apply};

const PROBE_FILE: &str = "probe.json";

const VERSION: u32 = 1;

/// The variable with the folders from which Python imports first (Python's manual, "Command line and environment").
pub(super) const PYTHONPATH: &str = "PYTHONPATH";

/// The file from which the hook reads its task. An environment variable would not do: a launcher may drop variables.
#[derive(Serialize)]
struct ProbeFile<'p> {
    version: u32,
    /// `None` if gputune does not measure the run.
    socket: Option<&'p Path>,
    trial: u32,
    config: &'p Settings,
    adapter: &'p str,
    seed: Option<u64>,
    apply: BTreeMap<String, Setting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    experiment: Option<&'p Experiment>,
    #[serde(flatten)]
    asks: Asks,
}

impl<'p> ProbeFile<'p> {
    /// Returns the file of a run that gputune does not measure.
    fn of_run(trial: u32, settings: &'p Settings, apply: &Apply, adapter: &'p Adapter) -> Self {
        Self {
            version: VERSION,
            socket: None,
            trial,
            config: settings,
            adapter: adapter.name,
            seed: None,
            apply: Setting::all(apply.by_hook(settings)),
            experiment: None,
            asks: Asks::default(),
        }
    }
}

#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Asks {
    /// True if the hook reports the modules that the first process has imported by its first step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) imports: bool,
    /// True if the hook accepts other settings later.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) live: bool,
}

/// Writes the hook into a folder of the probe, which is removed after the probe. Without an adapter, the hook sets nothing
/// and counts no steps. It then only silences trackers, and guards files if that is asked for.
pub(super) fn lay_down(folder: &Path, socket: &Path, job: &Job, apply: &Apply, asks: Asks) -> io::Result<()> {
    adapter::install(folder)?;
    let Some(adapter) = apply.adapter else { return Ok(()) };
    let probe = ProbeFile {
        socket: Some(socket),
        seed: Some(apply.seed),
        experiment: job.experiment.as_ref(),
        asks,
        ..ProbeFile::of_run(job.number, &job.settings, apply, adapter)
    };
    fs::write(folder.join(PROBE_FILE), serde_json::to_vec(&probe)?)
}

/// Puts a folder in front of `PYTHONPATH`, whose value is gputune's own if `env` has none.
pub(super) fn import_first(env: &mut BTreeMap<String, String>, folder: &Path) {
    let theirs = env.get(PYTHONPATH).map(Into::into).or_else(|| std::env::var_os(PYTHONPATH));
    env.insert(PYTHONPATH.to_owned(), in_front(folder.into(), theirs).to_string_lossy().into_owned());
}

/// Writes the hook into a permanent folder below `folder`, for a run that gputune does not measure. The hook then only
/// applies settings. Returns the value of `PYTHONPATH`: the hook's folder in front of `theirs`.
fn lay_for_run(
    folder: &Path,
    trial: u32,
    settings: &Settings,
    apply: &Apply,
    theirs: Option<OsString>,
) -> io::Result<OsString> {
    let probe = apply.adapter.map(|adapter| ProbeFile::of_run(trial, settings, apply, adapter));
    let probe = probe.map(|probe| serde_json::to_vec(&probe)).transpose()?;
    let mut hasher = DefaultHasher::new();
    (adapter::FILES, &probe).hash(&mut hasher);
    let path = folder.join(format!("python-{:016x}", hasher.finish()));
    // Other runs may begin at the same time, so the folder appears as a whole, by `rename`. Its name has the hash of
    // its contents, so an existing folder is already right.
    if !path.exists() {
        let new = tempfile::Builder::new().prefix(".python-").tempdir_in(folder)?;
        fs::set_permissions(new.path(), fs::Permissions::from_mode(0o755))?;
        adapter::install(new.path())?;
        if let Some(probe) = probe {
            fs::write(new.path().join(PROBE_FILE), probe)?;
        }
        match fs::rename(new.path(), &path) {
            Err(error) if !path.exists() => return Err(error),
            _ => {}
        }
    }
    Ok(in_front(path.into(), theirs))
}

/// Joins two values of `PYTHONPATH`. An empty `theirs` adds no entry: an empty entry would mean the working folder.
fn in_front(mut ours: OsString, theirs: Option<OsString>) -> OsString {
    if let Some(theirs) = theirs.filter(|theirs| !theirs.is_empty()) {
        ours.push(":");
        ours.push(theirs);
    }
    ours
}

/// Returns the command of a step with the settings of a trial, ready to start. Writes the files that the command needs
/// below `folder`, where they must stay.
///
/// # Errors
/// A file cannot be written, or the step has no command.
pub fn prepared(
    step: &StepTemplate,
    space: &Space,
    (trial, settings): (u32, &Settings),
    gputune: &Path,
    folder: &Path,
) -> io::Result<Command> {
    let own = folder.join(format!("{trial:04}"));
    let rendered = step.render(settings, gputune, &own);
    if step.uses_probe_dir() {
        fs::create_dir_all(&own)?;
    }
    for (path, text) in &rendered.files {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        // Other runs may read the file.
        write_whole(path, text.as_bytes())?;
    }
    let (program, arguments) = rendered.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let replaces = rendered.env.iter().any(|(name, _)| name == protocol::REPLACED_FILES);
    let mut command = Command::new(program);
    command.args(arguments).envs(rendered.env).current_dir(&rendered.cwd);
    // A script may also read its settings by `gputune.config`, which needs the hook.
    let asks = !step.uses_settings() || step.unheard(space).iter().any(|name| settings.get(name).is_some());
    if step.apply.adapter.is_none() && !asks && !replaces {
        return Ok(command);
    }
    command.env(protocol::CONFIG, serde_json::to_string(settings)?);
    let own = command.get_envs().find(|(name, _)| *name == PYTHONPATH).and_then(|(_, value)| value);
    let theirs = own.map(OsStr::to_owned).or_else(|| std::env::var_os(PYTHONPATH));
    fs::create_dir_all(folder)?;
    command.env(PYTHONPATH, lay_for_run(folder, trial, settings, &step.apply, theirs)?);
    Ok(command)
}
