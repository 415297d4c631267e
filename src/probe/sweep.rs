//! Cleans up after a gputune that was killed together with its supervisor: processes, a control group, shared memory segments, the
//! scratch folder. It touches nothing that belongs to a living gputune or to another user.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cgroup;
use super::scratch::{Note, OWNER, PREFIX, parents};
use super::shared_watch::SharedWatch;
use super::supervisor;

/// A folder without a lock file is abandoned from this age on: gputune was killed while making it. A round number.
const OLD: Duration = Duration::from_secs(600);

/// The possible contents of a scratch folder. Nothing else is removed.
const CONTENTS: &[&str] = &[OWNER, "events", "python", "tidy.json", "shared.json", "zygote", "zygote.json", "worker"];

pub(super) fn sweep() {
    parents().iter().for_each(|parent| sweep_in(parent));
    cgroup::remove_empty();
}

/// Cleans up after all abandoned scratch folders in a folder.
pub(super) fn sweep_in(parent: &Path) {
    abandoned(parent).iter().for_each(|folder| tidy(folder));
}

fn abandoned(parent: &Path) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)));
    // A link is never a scratch folder, whatever its target.
    let own = named.filter(|entry| entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == user));
    own.map(|entry| entry.path()).filter(|folder| is_abandoned(folder)).collect()
}

fn is_abandoned(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let is_known = |name: &str| CONTENTS.contains(&name) || name.starts_with(".tmp");
    if !entries.flatten().all(|entry| entry.file_name().to_str().is_some_and(is_known)) {
        return false;
    }
    match File::open(folder.join(OWNER)) {
        Ok(owner) => owner.try_lock().is_ok(),
        Err(_) => {
            let made = fs::metadata(folder).and_then(|data| data.modified());
            made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age >= OLD))
        }
    }
}

/// Removes everything that belongs to an abandoned folder. The folder comes last, so that a later run can continue.
fn tidy(folder: &Path) {
    let note = Note::read(folder);
    let mut shared = SharedWatch::recorded(folder);
    if let Some(pid) = note.as_ref().and_then(Note::living_supervisor) {
        if let Some((watch, own)) = &mut shared {
            supervisor::remember_shared(pid, watch, own);
        }
        supervisor::end_tree(pid);
    }
    if let Some(path) = note.and_then(|note| note.cgroup) {
        cgroup::end(&path);
    }
    if let Some((watch, own)) = shared {
        watch.clean(&own);
    }
    let _ = fs::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn scratch(parent: &Path, name: &str) -> PathBuf {
        let folder = parent.join(name);
        fs::create_dir(&folder).unwrap();
        fs::create_dir(folder.join("python")).unwrap();
        folder
    }

    #[test]
    fn a_folder_that_a_gputune_holds_stays() {
        let parent = tempfile::tempdir().unwrap();
        let owner = File::create(scratch(parent.path(), "gputune-held").join(OWNER)).unwrap();
        owner.lock().unwrap();
        assert!(abandoned(parent.path()).is_empty());
    }

    #[test]
    fn one_that_was_never_finished_is_abandoned_once_it_is_old() {
        let parent = tempfile::tempdir().unwrap();
        let folder = scratch(parent.path(), "gputune-old");
        std::os::unix::fs::symlink(&folder, parent.path().join("gputune-link")).unwrap();
        assert!(abandoned(parent.path()).is_empty());
        let old = SystemTime::now() - OLD - Duration::from_secs(1);
        File::open(&folder).unwrap().set_modified(old).unwrap();
        assert_eq!(abandoned(parent.path()), [folder]);
    }
}
