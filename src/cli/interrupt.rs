//! Stops a search at Ctrl-C, or when its script is edited. The first Ctrl-C keeps all results; the second ends gputune
//! at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use gputune::probe::supervisor;
use gputune::search::Conditions;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit::{Exit, Failed};

/// Makes this process the parent of all processes of its probes, and returns the flag of [`stop_flag`].
pub(super) fn before_probes() -> io::Result<Arc<AtomicBool>> {
    supervisor::adopt_orphans()?;
    stop_flag()
}

/// Returns a flag that the first SIGINT, SIGTERM or SIGHUP sets. The second signal ends the program at once, and so does the first
/// one after the flag was dropped. Of several flags, a signal sets the newest.
///
/// The probe's supervisor notices that gputune has ended, and ends the probe's processes.
pub(super) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    /// The flags; `None` until a thread handles signals.
    static FLAGS: Mutex<Option<Vec<Weak<AtomicBool>>>> = Mutex::new(None);
    let flags = || FLAGS.lock().unwrap_or_else(PoisonError::into_inner);
    let flag = Arc::new(AtomicBool::new(false));
    if let Some(flags) = flags().as_mut() {
        flags.retain(|flag| flag.strong_count() > 0);
        flags.push(Arc::downgrade(&flag));
        return Ok(flag);
    }
    let mut signals = signals()?;
    *flags() = Some(vec![Arc::downgrade(&flag)]);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            let newest = flags().iter().flatten().rev().find_map(Weak::upgrade);
            if newest.is_none_or(|flag| flag.swap(true, Ordering::Relaxed)) {
                leave();
            }
        }
    })?;
    Ok(flag)
}

/// Returns the signals to handle. Signals that were ignored at the start stay ignored: `nohup` ignores SIGHUP, and a shell ignores
/// SIGINT for background commands.
fn signals() -> io::Result<Signals> {
    // `SigIgn` is the mask of ignored signals (proc(5)); bit 0 is signal 1.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let is_ignored = |signal: i32| mask >> (signal - 1) & 1 == 1;
    Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)))
}

#[expect(clippy::exit, reason = "the second signal means now: no destructor may wait for a probe")]
fn leave() {
    super::live::restore();
    // Continues stopped supervisors, so that they notice that gputune is gone.
    supervisor::wake_all();
    std::process::exit(Exit::Interrupted.code().into())
}

/// The time between two checks for edits.
const PAUSE: Duration = Duration::from_secs(1);

/// The extensions of files that people edit. Other files that a command names may be its outputs.
const EDITED: &[&str] = &["py", "sh", "yaml", "yml", "toml"];

/// Watches the code of a job, and stops the search if it changes: trials before and after the edit cannot be compared.
pub(super) struct Edits {
    changed: Arc<OnceLock<String>>,
}

/// A file with its text at the start of the search, and its last known modification time.
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
        Err(Failed::usage(message).hint("search the new version: the same command with --fresh"))
    }
}

impl Watched {
    /// Returns the name of the file if its text has changed. A file that cannot be read counts as unchanged, and is read
    /// again the next time: an editor may be saving it.
    fn changed(&mut self) -> Option<String> {
        let now = written(&self.path)?;
        if self.written == Some(now) {
            return None;
        }
        let text = fs::read(&self.path).ok()?;
        self.written = Some(now);
        (text != self.text).then(|| self.name.clone())
    }
}

fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_found_after_a_read_that_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.py");
        fs::create_dir(&path).unwrap();
        let mut watched =
            Watched { path: path.clone(), name: "train.py".to_owned(), text: b"old".into(), written: None };
        assert_eq!(watched.changed(), None, "a folder cannot be read");
        assert_eq!(watched.written, None);
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "new").unwrap();
        assert_eq!(watched.changed(), Some("train.py".to_owned()));
        assert_eq!(watched.changed(), None);
    }
}
