//! Notices that the script is edited while a search runs: trials before and after the edit cannot be compared.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use gputune::search::Conditions;

use super::exit::{Exit, Failed};

/// How often the files are looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// The kinds of files that people edit. Other files of a command may be outputs.
const EDITED: &[&str] = &["py", "sh", "yaml", "yml", "toml"];

/// Watches the code of a job, and stops the search if it changes.
pub(super) struct Edits {
    changed: Arc<OnceLock<String>>,
}

/// A file, and what shows that it was written again.
struct Watched {
    name: String,
    path: PathBuf,
    text: Vec<u8>,
    written: Option<SystemTime>,
}

impl Edits {
    /// Watches the files that the trials depend on; `cwd` is the folder of the job.
    pub(super) fn watch(conditions: &Conditions, cwd: &Path, stop: &Arc<AtomicBool>) -> io::Result<Self> {
        let is_edited = |path: &Path| path.extension().is_some_and(|kind| EDITED.iter().any(|known| kind == *known));
        let paths = conditions.code.keys().map(|name| (name.clone(), cwd.join(name)));
        let watched = paths.filter(|(_, path)| is_edited(path)).filter_map(|(name, path)| {
            Some(Watched { name, text: fs::read(&path).ok()?, written: written(&path), path })
        });
        let (mut watched, stop): (Vec<Watched>, _) = (watched.collect(), Arc::clone(stop));
        let changed = Arc::new(OnceLock::new());
        let told = Arc::clone(&changed);
        std::thread::Builder::new().name("edits".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(PAUSE);
                if let Some(file) = watched.iter_mut().find_map(Watched::changed) {
                    let _ = told.set(file);
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
            }
        })?;
        Ok(Self { changed })
    }

    /// Returns an error if a file was edited.
    pub(super) fn none(&self) -> Result<(), Failed> {
        let Some(file) = self.changed.get() else { return Ok(()) };
        let message = format!(
            "{file} was edited during the search, so the search was stopped: its trials are of the old version"
        );
        Err(Failed::new(Exit::Usage, message).hint("search the new version: the same command with --fresh"))
    }
}

impl Watched {
    /// Returns the name of the file if its text has changed. A file that is missing for a moment is being saved.
    fn changed(&mut self) -> Option<String> {
        let now = written(&self.path)?;
        if self.written == Some(now) {
            return None;
        }
        self.written = Some(now);
        (fs::read(&self.path).ok()? != self.text).then(|| self.name.clone())
    }
}

fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}
