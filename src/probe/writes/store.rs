//! The folder for the writes of probes: it is removed at the end, and a probe ends before its part of the folder fills the disk.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::model::quantity::show_bytes;
use crate::probe::scratch::claim;

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
    pub(super) fn create(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        let mode = fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(mode).tempdir_in(parent)?;
        let lock = claim(folder.path(), LOCK)?;
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

fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let stores = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let user = rustix::process::geteuid().as_raw();
    for store in stores.filter(|entry| entry.metadata().is_ok_and(|data| data.uid() == user && data.is_dir())) {
        // Another process may just be making a store without a lock file, so only an old store is removed then.
        let is_old = |made: SystemTime| made.elapsed().is_ok_and(|age| age > Duration::from_secs(60));
        let made = || store.metadata().and_then(|data| data.modified());
        if File::open(store.path().join(LOCK)).map_or_else(|_| made().is_ok_and(is_old), |lock| is_unlocked(&lock)) {
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
    let is_freed = |lock: &File| {
        (0..ROUNDS).any(|_| {
            let is_free = is_unlocked(lock);
            std::thread::sleep(Duration::from_millis(if is_free { 0 } else { 25 }));
            is_free
        })
    };
    if !File::open(folder.join(LOCK)).is_ok_and(|lock| !is_freed(&lock)) {
        remove(folder);
    }
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

/// The free space on a disk that always remains for other programs: a round number.
const RESERVE: u64 = 128 << 20;
/// The shortest time between two counts of the layer's files: a round number.
const COUNT_HOLDS: Duration = Duration::from_secs(1);

/// Watches one probe's layer, so that the probe ends before the disk is full.
///
/// Asking the file system for its free space takes a microsecond. The layer's files are counted only after the free
/// space has shrunk by the allowed amount. Only the count shows whether the probe or another program wrote.
#[derive(Debug)]
pub(in crate::probe) struct Room {
    folder: PathBuf,
    most_bytes: u64,
    free_at_first: u64,
    counted: Option<Instant>,
}

impl Room {
    pub(super) fn new(folder: &Path, most_bytes: u64) -> Self {
        Self { folder: folder.to_owned(), most_bytes, free_at_first: free_bytes(folder).unwrap_or(0), counted: None }
    }

    /// Returns a message if the layer is full.
    pub(in crate::probe) fn look(&mut self, now: Instant) -> Option<String> {
        let free = free_bytes(&self.folder)?;
        let is_short = free < RESERVE && self.free_at_first > free;
        if !is_short && self.free_at_first.saturating_sub(free) < self.most_bytes {
            return None;
        }
        if self.counted.is_some_and(|counted| now.duration_since(counted) < COUNT_HOLDS) {
            return None;
        }
        self.counted = Some(now);
        let bytes = bytes_in(&self.folder);
        let is_too_much = bytes >= self.most_bytes || (is_short && bytes > RESERVE);
        is_too_much.then(|| {
            format!(
                "the scratch layer is full: the probe wrote {} and may write {} ({} are free in {}); raise `scratch_size` \
                 in [step], write less in a probe, or put gputune's folder (--out) on a larger disk",
                show_bytes(bytes),
                show_bytes(self.most_bytes),
                show_bytes(free),
                self.folder.display()
            )
        })
    }
}

/// Returns the bytes that this user may still write in a folder's file system.
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
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

    #[test]
    fn a_store_is_locked_before_another_process_can_sweep_it() {
        let parent = tempfile::tempdir().unwrap();
        let made = parent.path().join(format!("{PREFIX}made"));
        fs::create_dir(&made).unwrap();
        sweep(parent.path());
        assert!(made.exists(), "a new folder without a lock file stays");
        let lock = claim(&made, LOCK).unwrap();
        sweep(parent.path());
        assert!(made.join(LOCK).exists());
        drop(lock);
        sweep(parent.path());
        assert!(!made.exists());
    }

    #[test]
    fn a_layer_is_full_when_its_own_files_are_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = Room::new(folder.path(), 1 << 20);
        let begin = Instant::now();
        assert_eq!(room.look(begin), None);
        // Pretend that other programs wrote the missing amount.
        room.free_at_first += 1 << 30;
        assert_eq!(room.look(begin), None);
        fs::write(folder.path().join("checkpoint"), vec![1; 2 << 20]).unwrap();
        assert_eq!(room.look(begin), None, "a count holds for a while");
        let full = room.look(begin + COUNT_HOLDS).unwrap();
        assert!(full.starts_with("the scratch layer is full: the probe wrote 2.0"), "{full}");
        assert!(full.contains("may write 1.00 MiB"), "{full}");
    }
}
