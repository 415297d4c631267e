//! What a probe of a command finds around it: variables and folders.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{CommandProber, Effort, Experiment, Job, ProbeError};

/// The variable that makes Python print at once (its documentation, "Command line and environment").
const UNBUFFERED: &str = "PYTHONUNBUFFERED";

pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ProbeError {
    let path = path.to_owned();
    move |source| ProbeError::Io { action, path: Some(path), source }
}

/// The variables of the spec and of an experiment.
pub(super) fn environment(of_spec: Vec<(String, String)>, job: &Job<'_>) -> BTreeMap<String, String> {
    let of_experiment = job.experiment.map(Experiment::environment).unwrap_or_default();
    let mut env: BTreeMap<String, String> = of_spec.into_iter().chain(of_experiment).collect();
    if std::env::var_os(UNBUFFERED).is_none() {
        // Python holds printed lines back when they go to no terminal, and a rate that is held back is not seen.
        env.entry(UNBUFFERED.to_owned()).or_insert_with(|| "1".to_owned());
    }
    env
}

/// Where the files of a probe are rendered; those of a run in full precision leave the trial's own alone.
pub(super) fn rendered_folder(folder: &Path, job: &Job<'_>) -> PathBuf {
    let suffix = if job.effort == Effort::Losses { "full-precision" } else { "" };
    CommandProber::probe_dir(folder, job.number).with_extension(suffix)
}

/// A folder for the socket, whose path must be short: a socket's name holds 107 bytes (unix(7)).
pub(super) fn scratch_folder() -> Result<tempfile::TempDir, ProbeError> {
    const LONGEST: usize = 80;
    let folder = Some(std::env::temp_dir()).filter(|path| path.as_os_str().len() < LONGEST).unwrap_or("/tmp".into());
    tempfile::Builder::new().prefix("gputune-").tempdir_in(&folder).map_err(io_error("create a folder in", &folder))
}
