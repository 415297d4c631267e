//! The folder for the writes of probes, and its removal.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The prefix of stores, which identifies leftovers.
const PREFIX: &str = ".gputune-writes-";
const LOCK: &str = "lock";

/// A folder that is removed when dropped; if this process is killed, the supervisor removes it.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    /// A lock that is held while the folder is in use, so that other processes keep the folder.
    _lock: File,
}

impl Store {
    /// Makes a store in a folder, and removes leftover stores there.
    pub(super) fn create(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        let mode = fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(mode).tempdir_in(parent)?;
        let lock = File::create(folder.path().join(LOCK))?;
        lock.try_lock().map_err(io::Error::from)?;
        let path = folder.keep().canonicalize()?;
        DirBuilder::new().mode(0o755).create(path.join("empty"))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes unused stores of this user.
fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let stores = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for store in stores.filter(|entry| entry.metadata().is_ok_and(|data| data.uid() == own_user() && data.is_dir())) {
        let is_free = match File::open(store.path().join(LOCK)) {
            Ok(lock) => is_unlocked(&lock),
            // Another process may just be making this store.
            Err(_) => store
                .metadata()
                .and_then(|data| data.modified())
                .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > Duration::from_secs(60))),
        };
        if is_free {
            remove(&store.path());
        }
    }
}

fn is_unlocked(lock: &File) -> bool {
    !matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

/// Removes a folder, unless it is a store that a living process uses.
pub(in crate::probe) fn remove_unless_used(folder: &Path) {
    // A killed process may still be closing its files.
    const ROUNDS: u32 = 20;
    let is_used = |lock: &File| {
        (0..ROUNDS).all(|_| {
            !is_unlocked(lock) && {
                std::thread::sleep(Duration::from_millis(25));
                true
            }
        })
    };
    if !File::open(folder.join(LOCK)).is_ok_and(|lock| is_used(&lock)) {
        remove(folder);
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Removes a folder with its contents, as far as possible. Overlays and probes leave folders without access rights.
pub(super) fn remove(folder: &Path) {
    if fs::remove_dir_all(folder).is_err() {
        open_up(folder);
        let _ = fs::remove_dir_all(folder);
    }
}

fn open_up(folder: &Path) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Returns the disk space of a folder's files; unreadable folders count as empty.
pub(super) fn bytes_in(folder: &Path) -> u64 {
    const BLOCK: u64 = 512;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes_in(&entry.path()),
        Ok(data) => data.blocks() * BLOCK,
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_goes_with_folders_that_nobody_may_enter() {
        let parent = tempfile::tempdir().unwrap();
        let store = Store::create(parent.path()).unwrap();
        let locked = store.path().join("outer/inner");
        fs::create_dir_all(&locked).unwrap();
        fs::write(locked.join("file"), vec![1; 10_000]).unwrap();
        assert!(bytes_in(store.path()) >= 10_000);
        fs::set_permissions(locked.parent().unwrap(), fs::Permissions::from_mode(0o000)).unwrap();
        let path = store.path().to_owned();
        drop(store);
        assert!(!path.exists());
    }

    #[test]
    fn what_was_left_goes_and_what_is_used_stays() {
        let parent = tempfile::tempdir().unwrap();
        let used = Store::create(parent.path()).unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let other = parent.path().join("kept");
        fs::create_dir(&other).unwrap();
        let second = Store::create(parent.path()).unwrap();
        remove_unless_used(used.path());
        assert!(used.path().exists() && second.path().exists() && other.exists() && !left.exists());
    }
}
