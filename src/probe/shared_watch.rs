//! Watches a probe's files in shared memory, and removes its leftovers there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::scratch::write_whole;
use crate::machine::{
    SharedMemory, process_table,
    shared::{FOLDER, SharedFile, files_of},
};
use crate::model::quantity::show_bytes;

/// Shared memory counts as full from this share of use on: the next batch may be larger than the rest. A round number.
const FULL: f64 = 0.9;

#[derive(Default)]
pub(super) struct SharedWatch {
    before: BTreeSet<u64>,
    /// The named files that the probe's processes had open, by inode.
    seen: BTreeMap<u64, PathBuf>,
    pub(super) peak_bytes: u64,
    fullest: Option<SharedMemory>,
    /// The folder for notes on cleaning up, and the numbers of files and processes in the notes.
    record: Option<(PathBuf, (usize, usize))>,
}

const RECORD: &str = "shared.json";

#[derive(Serialize, Deserialize)]
struct Record {
    before: BTreeSet<u64>,
    seen: BTreeMap<u64, PathBuf>,
    own: BTreeSet<u32>,
}

impl SharedWatch {
    /// Makes a watch before the probe begins. It writes notes into the probe's folder, for cleaning up if this process is killed.
    pub(super) fn begin(folder: &Path) -> Self {
        let mut watch = Self::new();
        watch.write_record(folder, &BTreeSet::new());
        watch.record = Some((folder.to_owned(), (0, 0)));
        watch
    }

    fn new() -> Self {
        Self { before: named_files().into_iter().map(|(inode, _)| inode).collect(), ..Self::default() }
    }

    /// Checks how full shared memory is, which takes microseconds.
    pub(super) fn glance(&mut self) {
        if let Some(memory) = SharedMemory::read()
            && self.fullest.is_none_or(|fullest| memory.free_bytes < fullest.free_bytes)
        {
            self.fullest = Some(memory);
        }
    }

    pub(super) fn see(&mut self, files: BTreeMap<u64, SharedFile>) {
        self.peak_bytes = self.peak_bytes.max(files.values().map(|file| file.bytes).sum());
        let named = files.into_iter().filter_map(|(inode, file)| Some((inode, file.path?)));
        self.seen.extend(named.filter(|(inode, _)| !self.before.contains(inode)));
    }

    /// Begins anew: earlier files do not count in later peaks.
    pub(super) fn begin_anew(&mut self) {
        self.peak_bytes = 0;
    }

    pub(super) fn record(&mut self, own: &BTreeSet<u32>) {
        let count = (self.seen.len(), own.len());
        if let Some((folder, _)) = self.record.take_if(|(_, recorded)| *recorded != count) {
            self.write_record(&folder, own);
            self.record = Some((folder, count));
        }
    }

    /// Writes the notes. They are only needed if this process is killed, so an error is ignored.
    fn write_record(&self, folder: &Path, own: &BTreeSet<u32>) {
        let record = Record { before: self.before.clone(), seen: self.seen.clone(), own: own.clone() };
        let _ = serde_json::to_vec(&record).map(|record| write_whole(&folder.join(RECORD), &record));
    }

    /// Reads the notes in a probe's folder. Returns the watch and the probe's processes.
    pub(super) fn recorded(folder: &Path) -> Option<(Self, BTreeSet<u32>)> {
        let Record { before, seen, own } = serde_json::from_slice(&fs::read(folder.join(RECORD)).ok()?).ok()?;
        Some((Self { before, seen, ..Self::default() }, own))
    }

    pub(super) fn full(&self) -> Option<String> {
        let memory = self.fullest?;
        let (used, total) = (memory.used_bytes(), memory.total_bytes);
        let is_full = used as f64 / total as f64 >= FULL;
        is_full.then(|| format!("{} of the {} of {FOLDER} were in use", show_bytes(used), show_bytes(total)))
    }

    /// Removes the files that the probe's processes left, after the processes are gone. Such a file is newer than this
    /// watch, and no process uses it. Also, a process of the probe had the file open, or the file's name has the id of
    /// a process, as PyTorch's names do (`torch_PID_RANDOM_COUNT`).
    pub(super) fn clean(&self, own: &BTreeSet<u32>) {
        let is_probes = |inode: &u64, path: &Path| self.seen.contains_key(inode) || is_of(path, own);
        let mut left = named_files();
        left.retain(|(inode, path)| !self.before.contains(inode) && is_probes(inode, path));
        if left.is_empty() {
            return;
        }
        let used = files_of(&process_table::all());
        let user = rustix::process::geteuid().as_raw();
        for (_, path) in left.iter().filter(|(inode, _)| !used.contains_key(inode)) {
            // The file may be gone by now. A file of another user stays, even if this user may remove it.
            if fs::symlink_metadata(path).is_ok_and(|data| data.uid() == user) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn named_files() -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| Some((entry.metadata().ok().filter(fs::Metadata::is_file)?, entry.path())));
    files.map(|(data, path)| (data.ino(), path)).collect()
}

/// Returns true if a file's name has one of these process ids where PyTorch puts it.
fn is_of(path: &Path, own: &BTreeSet<u32>) -> bool {
    let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix("torch_")?.split('_').next());
    number.and_then(|number| number.parse().ok()).is_some_and(|pid| own.contains(&pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared_file(prefix: &str) -> Option<tempfile::TempPath> {
        Some(tempfile::Builder::new().prefix(prefix).tempfile_in(FOLDER).ok()?.into_temp_path())
    }

    #[test]
    fn only_what_the_probe_left_is_removed() {
        let pid = 4_194_305; // beyond the largest process id that Linux gives
        let Some(earlier) = shared_file(&format!("torch_{pid}_")) else { return };
        let watch = SharedWatch::new();
        let left = shared_file(&format!("torch_{pid}_")).unwrap();
        let other = shared_file("torch_1_").unwrap();
        let in_use = fs::File::open(&left).unwrap();
        watch.clean(&BTreeSet::from([pid]));
        assert!(left.exists(), "somebody uses it");
        drop(in_use);
        watch.clean(&BTreeSet::from([pid]));
        assert!(!left.exists() && other.exists() && earlier.exists());
    }
}
