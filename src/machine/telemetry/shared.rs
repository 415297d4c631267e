//! Shared memory: the file system `/dev/shm`, through which data workers hand over batches.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder of POSIX shared memory on Linux (shm_overview(7)).
pub const FOLDER: &str = "/dev/shm";
/// The unit of `st_blocks` (stat(3type)).
const BLOCK: u64 = 512;

/// The size and the free part of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedMemory {
    /// The total size, in bytes.
    pub total_bytes: u64,
    /// The free part, in bytes.
    pub free_bytes: u64,
}

impl SharedMemory {
    /// Reads the sizes now; `None` if there is no shared memory.
    pub fn read() -> Option<Self> {
        let stat = rustix::fs::statvfs(FOLDER).ok()?;
        let (total_bytes, free_bytes) = (stat.f_blocks * stat.f_frsize, stat.f_bfree * stat.f_frsize);
        (total_bytes > 0).then_some(Self { total_bytes, free_bytes })
    }

    /// Returns the used part, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes)
    }
}

/// A file in shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedFile {
    /// Its name, if it still has one.
    pub path: Option<PathBuf>,
    /// The memory that it takes, in bytes; the size of the mapping if only the mapping is visible.
    pub bytes: u64,
}

/// Returns the files in shared memory that processes hold open or mapped, by inode.
pub fn files_of(pids: &[u32]) -> BTreeMap<u64, SharedFile> {
    let mut files = BTreeMap::new();
    for &pid in pids {
        mapped(pid, &mut files);
        open(pid, &mut files);
    }
    files
}

/// Returns `Some` if a link in `/proc` leads to shared memory, with the file's name if it still has one.
fn name_of(target: &str) -> Option<Option<PathBuf>> {
    let rest = target.strip_prefix(FOLDER)?.strip_prefix('/')?;
    Some((!rest.ends_with(" (deleted)")).then(|| Path::new(FOLDER).join(rest)))
}

fn open(pid: u32, files: &mut BTreeMap<u64, SharedFile>) {
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let Some(path) = target.to_str().and_then(name_of) else { continue };
        // The link leads to the file itself, even if the file has no name any more.
        let Ok(data) = fs::metadata(entry.path()) else { continue };
        if data.is_file() {
            files.insert(data.ino(), SharedFile { path, bytes: data.blocks() * BLOCK });
        }
    }
}

fn mapped(pid: u32, files: &mut BTreeMap<u64, SharedFile>) {
    let Ok(maps) = fs::read(format!("/proc/{pid}/maps")) else { return };
    let text = String::from_utf8_lossy(&maps);
    let mut sizes: BTreeMap<u64, (Option<PathBuf>, u64)> = BTreeMap::new();
    for (inode, size, path) in text.lines().filter_map(mapping) {
        sizes.entry(inode).or_insert((path, 0)).1 += size;
    }
    for (inode, (path, size)) in sizes {
        let data = path.as_ref().and_then(|path| fs::metadata(path).ok()).filter(|data| data.ino() == inode);
        let bytes = data.map_or(size, |data| data.blocks() * BLOCK);
        let known = files.entry(inode).or_insert(SharedFile { path, bytes });
        known.bytes = known.bytes.max(bytes);
    }
}

/// Parses inode, size and name in a line like `7f00-7f80 rw-s 00000000 00:18 42  /dev/shm/torch_1 (deleted)`.
fn mapping(line: &str) -> Option<(u64, u64, Option<PathBuf>)> {
    let path = name_of(&line[line.find(FOLDER)?..])?;
    let mut fields = line.split_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    let size = u64::from_str_radix(to, 16).ok()?.checked_sub(u64::from_str_radix(from, 16).ok()?)?;
    Some((fields.nth(3)?.parse().ok()?, size, path))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line =
            "7f0000000000-7f0000002000 rw-s 00000000 00:18 42                         /dev/shm/torch_1_2 (deleted)";
        assert_eq!(mapping(line), Some((42, 0x2000, None)));
        let line = "7f0000000000-7f0000001000 rw-s 00000000 00:18 7    /dev/shm/psm_1";
        assert_eq!(mapping(line), Some((7, 0x1000, Some(PathBuf::from("/dev/shm/psm_1")))));
        assert_eq!(mapping("7f0000000000-7f0000001000 r--p 00000000 fe:01 7    /usr/lib/libc.so.6"), None);
    }

    #[test]
    fn an_open_file_counts_with_a_name_and_without() {
        let Ok(mut file) = tempfile::Builder::new().prefix("gputune-test-").tempfile_in(FOLDER) else { return };
        file.write_all(&vec![1; 1 << 16]).unwrap();
        let inode = file.as_file().metadata().unwrap().ino();
        let own = [std::process::id()];
        let held = files_of(&own).remove(&inode).unwrap();
        assert_eq!((held.path.as_deref(), held.bytes), (Some(file.path()), 1 << 16));
        let (file, path) = file.into_parts();
        path.close().unwrap();
        assert_eq!(files_of(&own)[&inode], SharedFile { path: None, bytes: 1 << 16 });
        drop(file);
        assert!(!files_of(&own).contains_key(&inode));
        assert!(SharedMemory::read().is_some_and(|memory| memory.free_bytes <= memory.total_bytes));
    }
}
