//! Prepares a run that gputune does not measure: the job in its own terms, with a config applied.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use super::hook::{self, PYTHONPATH};
use super::protocol;
use super::template::StepTemplate;
use crate::model::{Settings, Space};

/// Returns the command of a step with this config of a trial, ready to start. The job's files go below `folder` and must stay there.
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
        put(path, text.as_bytes())?;
    }
    let (program, arguments) = rendered.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let replaces = rendered.env.iter().any(|(name, _)| name == protocol::REPLACED_FILES);
    let mut command = Command::new(program);
    command.args(arguments).envs(rendered.env).current_dir(&rendered.cwd);
    // A script may also read its settings by `gputune.config`.
    let asks = !step.uses_settings() || step.unheard(space).iter().any(|name| settings.get(name).is_some());
    if step.apply.adapter.is_none() && !asks && !replaces {
        return Ok(command);
    }
    command.env(protocol::CONFIG, serde_json::to_string(settings)?);
    let own = command.get_envs().find(|(name, _)| *name == PYTHONPATH).and_then(|(_, value)| value);
    let theirs = own.map(OsStr::to_owned).or_else(|| std::env::var_os(PYTHONPATH));
    fs::create_dir_all(folder)?;
    let path = hook::lay_for_run(folder, trial, settings, &step.apply, theirs)?;
    command.env(PYTHONPATH, path);
    Ok(command)
}

/// Writes a file as a whole, because other runs may read it.
fn put(path: &Path, contents: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(contents)?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}
