//! Finds data folders: folders with many files that are often read and rarely written.
//!
//! Opening a file through a layer takes some microseconds longer, which slows a loader of small files. So folders with very many
//! files are made read-only instead, which protects them equally. If a probe tries to write to such a folder, it is repeated with a
//! layer over the folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A folder with this many files counts as data. All limits here are round numbers that bound the search.
const MANY: usize = 1000;
/// From this number on, folders with one parent are counted together: they may be the classes of a dataset.
const SIDE_BY_SIDE: usize = 8;
/// How deep the files of a class may lie.
const DEPTH_OF_CLASSES: usize = 3;
/// The maximum depth, number and time in the search for data folders.
const DEPTH: usize = 5;
const MOST: usize = 48;
const LONGEST: Duration = Duration::from_millis(400);

/// Names of folders that jobs write to, even if they hold many files.
const WRITTEN: &str = "out output outputs run runs log logs result results checkpoint checkpoints ckpt ckpts \
    lightning_logs wandb mlruns samples save saved tmp temp cache gputune-out";

/// Returns the data folders in `below`, without folders that are, or contain, a folder of `not`.
pub(super) fn folders(below: &[PathBuf], not: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut search = Search { not, found: BTreeSet::new(), deadline: Instant::now() + LONGEST };
    for start in below {
        search.descend(start, DEPTH);
    }
    search.found
}

struct Search<'s> {
    not: &'s [PathBuf],
    found: BTreeSet<PathBuf>,
    deadline: Instant,
}

impl Search<'_> {
    /// Adds the data folders in a folder, at most `depth` levels below it.
    fn descend(&mut self, folder: &Path, depth: usize) {
        let is_out = self.found.len() >= MOST || Instant::now() >= self.deadline;
        if is_out || self.found.iter().any(|found| folder.starts_with(found)) {
            return;
        }
        let (files, folders) = contents(folder);
        let may_be = self.not.iter().all(|kept| !kept.starts_with(folder));
        if may_be && (files >= MANY || self.holds_classes(files, &folders)) {
            self.found.insert(folder.to_owned());
        } else if depth > 0 {
            for inner in folders.iter().filter(|inner| !is_written(inner)) {
                self.descend(inner, depth - 1);
            }
        }
    }

    /// Counts the files in a folder and its subfolders, up to `MANY`.
    fn files_below(&self, folder: &Path, depth: usize) -> usize {
        let (mut files, folders) = contents(folder);
        for inner in folders.iter().filter(|_| depth > 0) {
            if files >= MANY || Instant::now() >= self.deadline {
                break;
            }
            files += self.files_below(inner, depth - 1);
        }
        files
    }

    /// Returns true if many subfolders contain files, and there are enough files in total to count as data.
    fn holds_classes(&self, mut files: usize, folders: &[PathBuf]) -> bool {
        if folders.len() < SIDE_BY_SIDE || folders.iter().any(|folder| is_written(folder)) {
            return false;
        }
        let mut with_files = 0;
        for folder in folders {
            let here = self.files_below(folder, DEPTH_OF_CLASSES);
            files += here;
            with_files += usize::from(here > 0);
            if (files >= MANY && with_files >= SIDE_BY_SIDE) || Instant::now() >= self.deadline {
                break;
            }
        }
        files >= MANY && with_files >= SIDE_BY_SIDE
    }
}

/// Returns true if a folder's name shows that jobs or tools write to it. Hidden folders belong to tools.
fn is_written(folder: &Path) -> bool {
    let name = folder.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    name.starts_with('.') || WRITTEN.split(' ').any(|written| written == name)
}

/// Returns the number of files in a folder, and the paths of its subfolders. Stops at `MANY` files.
fn contents(folder: &Path) -> (usize, Vec<PathBuf>) {
    let (mut files, mut folders) = (0, Vec::new());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_file() => files += 1,
            Ok(kind) if kind.is_dir() => folders.push(entry.path()),
            _ => {}
        }
        if files >= MANY {
            break;
        }
    }
    folders.sort();
    (files, folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(folder: &Path, files: usize) {
        fs::create_dir_all(folder).unwrap();
        for at in 0..files {
            fs::write(folder.join(at.to_string()), "").unwrap();
        }
    }

    #[test]
    fn folders_with_very_many_files_are_data() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fill(&project.join("data/flat"), MANY);
        for class in 0..SIDE_BY_SIDE {
            fill(&project.join(format!("photos/train/{class}")), MANY / SIDE_BY_SIDE);
            fill(&project.join(format!("nested/{class}/a/b")), MANY / SIDE_BY_SIDE);
        }
        fill(&project.join("few"), 10);
        fill(&project.join("runs"), MANY);
        fill(&project.join(".git"), MANY);
        let found = folders(std::slice::from_ref(&project), std::slice::from_ref(&project));
        let expected: BTreeSet<_> =
            [project.join("data/flat"), project.join("nested"), project.join("photos/train")].into();
        assert_eq!(found, expected);
        // The working folder is written to, even if it is full of files.
        let flat = project.join("data/flat");
        assert_eq!(folders(std::slice::from_ref(&flat), std::slice::from_ref(&flat)), BTreeSet::new());
        assert_eq!(folders(std::slice::from_ref(&flat), &[flat.join("inner/gputune-out")]), BTreeSet::new());
    }
}
