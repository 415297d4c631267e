//! Creates a folder atomically: writes it under a temporary name, then renames it.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::DemoError;

const ATTEMPTS: usize = 8;

/// Makes `parent/name` a folder that `is_valid`, with the files that `write` puts there.
///
/// At any moment the folder is absent, complete, or an older invalid folder, even if the process is killed. Processes that start at
/// the same time wait for the first process.
pub(super) fn publish_folder(
    parent: &Path,
    name: &str,
    is_valid: impl Fn(&Path) -> bool,
    write: impl Fn(&Path) -> Result<(), DemoError>,
) -> Result<PathBuf, DemoError> {
    let target = parent.join(name);
    if is_valid(&target) {
        return Ok(target);
    }
    fs::create_dir_all(parent).map_err(|source| DemoError::io(parent, source))?;
    let lock = lock_file(parent, name)?;
    if is_valid(&target) {
        return Ok(target);
    }
    if lock.is_some() {
        remove_leftovers(parent, name);
    }
    let draft = parent.join(unique_name(name));
    let published = fs::create_dir(&draft)
        .map_err(|source| DemoError::io(&draft, source))
        .and_then(|()| write(&draft))
        .and_then(|()| swap_in(&draft, &target, &is_valid));
    if published.is_err() {
        remove(&draft);
    }
    published.map(|()| target)
}

// Works without a lock only if the file system has no locks. Then two processes may both write, and the renames still publish only
// complete folders.
fn lock_file(parent: &Path, name: &str) -> Result<Option<File>, DemoError> {
    let path = parent.join(format!("{name}.lock"));
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|source| DemoError::io(&path, source))?;
    match file.lock() {
        Ok(()) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        Err(source) => Err(DemoError::io(&path, source)),
    }
}

fn swap_in(draft: &Path, target: &Path, is_valid: &impl Fn(&Path) -> bool) -> Result<(), DemoError> {
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        outcome = fs::rename(draft, target);
        if outcome.is_ok() {
            return Ok(());
        }
        if is_valid(target) {
            remove(draft);
            return Ok(());
        }
        let aside = target.with_file_name(unique_name(&file_name(target)));
        if fs::rename(target, &aside).is_ok() {
            remove(&aside);
        }
    }
    outcome.map_err(|source| DemoError::io(target, source))
}

fn remove_leftovers(parent: &Path, name: &str) {
    let prefix = draft_prefix(name);
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            remove(&entry.path());
        }
    }
}

// A leftover that cannot be removed only costs disk space. The next run tries again.
fn remove(path: &Path) {
    let _ = fs::remove_dir_all(path).or_else(|_| fs::remove_file(path));
}

fn draft_prefix(name: &str) -> String {
    format!("{name}.draft-")
}

fn unique_name(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}{}-{number}", draft_prefix(name), process::id())
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
