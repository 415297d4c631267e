//! Checks the size of a probe's scratch layer, so that the probe ends before the disk is full.
//!
//! Asking the file system for its free space takes a microsecond. The layer's files are counted only after that space has shrunk by
//! the allowed amount, because other programs may also have written.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::store::bytes_in;
use crate::model::quantity::show_bytes;

/// The free space on a disk that always remains for other programs: a round number.
const RESERVE: u64 = 128 << 20;
/// How long a count is used: a round number.
const COUNT_HOLDS: Duration = Duration::from_secs(1);

/// Watches one probe's layer.
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
    use std::fs;

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
