//! Drops the files of a dataset from the page cache, so that a probe measures storage.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::evidence::Evidence;

/// The folder in which a dataset opens its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    /// Returns the folder that the job reported, if it reported one.
    pub(super) fn of(evidence: &Evidence) -> Option<Self> {
        let folder = PathBuf::from(evidence.text("files.path").filter(|path| !path.is_empty())?);
        let folder = if folder.is_file() { folder.parent()?.to_owned() } else { folder };
        folder.is_dir().then_some(Self { folder })
    }

    /// Drops the files from the page cache, and returns their number. It calls posix_fadvise(2) with `POSIX_FADV_DONTNEED`, which needs
    /// only read access. Unwritten and mapped parts of a file stay.
    pub(super) fn drop_from_cache(&self, stop: &AtomicBool) -> usize {
        /// Round numbers: bounds on the time that this step of a diagnosis takes.
        const MOST: usize = 200_000;
        const LONGEST: Duration = Duration::from_secs(5);
        let begin = Instant::now();
        let (mut folders, mut dropped) = (vec![self.folder.clone()], 0);
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                if dropped >= MOST || begin.elapsed() > LONGEST || stop.load(Ordering::Relaxed) {
                    return dropped;
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    Ok(kind) if kind.is_file() => dropped += usize::from(drop_one(&entry.path())),
                    _ => {}
                }
            }
        }
        dropped
    }
}

fn drop_one(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::sample::Job;

    #[test]
    fn files_below_the_folder_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        for name in ["a.bin", "below/b.bin"] {
            std::fs::write(folder.path().join(name), [0; 10]).unwrap();
        }
        let path = folder.path().display().to_string();
        let files = Files::of(&Job::cpu().text("files.path", &path).evidence()).unwrap();
        assert_eq!(files.drop_from_cache(&AtomicBool::new(false)), 2);
        let file = folder.path().join("a.bin").display().to_string();
        assert_eq!(Files::of(&Job::cpu().text("files.path", &file).evidence()), Some(files));
        assert_eq!(Files::of(&Job::cpu().text("files.path", "/not/there").evidence()), None);
        assert_eq!(Files::of(&Job::cpu().evidence()), None);
    }
}
