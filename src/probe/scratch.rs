//! A probe's scratch folder. It holds the socket, the hook, and the notes for cleaning up after a gputune that was killed
//! together with its supervisor. Cleaning up touches nothing that belongs to a living gputune or to another user.
//!
//! Only its user may enter it, whatever the umask. The gputune that made the folder keeps the file `owner` in it
//! locked. The kernel releases the lock when that gputune ends, even if it is killed. So a folder with an unlocked file
//! `owner` is abandoned.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cgroup::{self, Cgroup};
use super::shared_watch::SharedWatch;
use super::{ProbeError, supervisor};
use crate::machine::process_table;

const PREFIX: &str = "gputune-";

/// The file that is locked while the folder's gputune lives.
pub(super) const OWNER: &str = "owner";

/// The file with the notes for cleaning up.
pub(super) const NOTE: &str = "tidy.json";

/// The longest path of the parent folder: the path of a socket has at most 107 bytes (unix(7)).
const LONGEST: usize = 80;

/// A folder without a lock file is abandoned from this age on: gputune was killed while making it. A round number.
const OLD: Duration = Duration::from_secs(600);

/// The possible contents of a scratch folder. Nothing else is removed.
const CONTENTS: &[&str] = &[OWNER, "events", "python", "tidy.json", "shared.json", "zygote", "zygote.json", "worker"];

/// A scratch folder, which is removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: tempfile::TempDir,
    _owner: File,
}

/// The processes of a probe, for the gputune that cleans up after it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    supervisor: u32,
    /// The start time of the supervisor, in clock ticks since boot, because another process may get its process id.
    started: u64,
    /// The id of the boot, because process ids are only valid within one boot.
    boot: String,
    /// The process id namespace in which `supervisor` is valid.
    namespace: String,
    /// The path of the probe's control group, even if the group does not exist.
    cgroup: Option<PathBuf>,
}

/// Returns the folders that may contain scratch folders. The first contains new scratch folders.
fn parents() -> Vec<PathBuf> {
    let usual = std::env::temp_dir();
    let mut parents = vec![PathBuf::from("/tmp")];
    if usual.as_os_str().len() < LONGEST && usual != parents[0] {
        parents.insert(0, usual);
    }
    parents
}

impl Scratch {
    pub(super) fn new() -> Result<Self, ProbeError> {
        let parent = parents().remove(0);
        let made = || -> io::Result<Self> {
            let private = Permissions::from_mode(0o700);
            let folder = tempfile::Builder::new().prefix(PREFIX).permissions(private.clone()).tempdir_in(&parent)?;
            // The umask may have removed the owner's own rights.
            fs::set_permissions(folder.path(), private)?;
            let owner = claim(folder.path())?;
            Ok(Self { folder, _owner: owner })
        };
        made().map_err(ProbeError::io("create a folder in", &parent))
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Notes which supervisor belongs to the folder. Without the note, less can be cleaned up, but nothing else goes wrong.
    pub(super) fn note(&self, supervisor: u32) {
        let note = Note {
            supervisor,
            started: process_table::started(supervisor).unwrap_or_default(),
            boot: boot(),
            namespace: namespace(),
            cgroup: Cgroup::folder_of(supervisor),
        };
        let _ = serde_json::to_vec(&note).map(|note| write_whole(&self.path().join(NOTE), &note));
    }
}

impl Note {
    fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(NOTE)).ok()?).ok()
    }

    /// Returns the supervisor if it is alive and visible here.
    fn living_supervisor(&self) -> Option<u32> {
        let is_here = self.boot == boot() && self.namespace == namespace();
        let is_it = is_here && self.started > 0 && process_table::started(self.supervisor) == Some(self.started);
        is_it.then_some(self.supervisor)
    }
}

/// Locks the file that marks the owner of a folder, until the returned file is dropped. The file gets its name only after it is
/// locked, so no other process can find it unlocked while this process lives.
pub(super) fn claim(folder: &Path) -> io::Result<File> {
    let unlocked = folder.join(".tmp-owner");
    let owner = File::create_new(&unlocked)?;
    owner.lock()?;
    fs::rename(unlocked, folder.join(OWNER))?;
    Ok(owner)
}

pub(super) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default()
}

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

    #[test]
    fn a_folder_is_private_and_tells_its_supervisor_while_that_lives() {
        let scratch = Scratch::new().unwrap();
        let mode = fs::metadata(scratch.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(Note::read(scratch.path()).is_none());
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        scratch.note(child.id());
        let note = Note::read(scratch.path()).unwrap();
        assert_eq!(note.living_supervisor(), Some(child.id()));
        assert_eq!(Note { started: note.started + 1, ..Note::read(scratch.path()).unwrap() }.living_supervisor(), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(note.living_supervisor(), None);
    }

    fn scratch(parent: &Path, name: &str) -> PathBuf {
        let folder = parent.join(name);
        fs::create_dir(&folder).unwrap();
        fs::create_dir(folder.join("python")).unwrap();
        folder
    }

    #[test]
    fn only_what_nobody_holds_and_what_is_known_is_abandoned() {
        let parent = tempfile::tempdir().unwrap();
        let left = scratch(parent.path(), "gputune-left");
        File::create(left.join(OWNER)).unwrap();
        let held = scratch(parent.path(), "gputune-held");
        let owner = File::create(held.join(OWNER)).unwrap();
        owner.lock().unwrap();
        scratch(parent.path(), "gputune-young");
        let other = scratch(parent.path(), "gputune-data");
        File::create(other.join(OWNER)).unwrap();
        fs::write(other.join("mine.txt"), "kept").unwrap();
        File::create(scratch(parent.path(), "other-left").join(OWNER)).unwrap();
        std::os::unix::fs::symlink(&left, parent.path().join("gputune-link")).unwrap();
        assert_eq!(abandoned(parent.path()), std::slice::from_ref(&left));
        tidy(&left);
        assert!(!left.exists() && held.exists());
        drop(owner);
        // A process that another test started a moment ago holds the lock until it runs its program.
        let mut looks = (0..500).map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            abandoned(parent.path())
        });
        assert_eq!(looks.find(|left| !left.is_empty()), Some(vec![held]));
    }

    #[test]
    fn one_that_was_never_finished_is_abandoned_once_it_is_old() {
        let parent = tempfile::tempdir().unwrap();
        let folder = scratch(parent.path(), "gputune-old");
        assert!(abandoned(parent.path()).is_empty());
        let old = SystemTime::now() - OLD - Duration::from_secs(1);
        File::open(&folder).unwrap().set_modified(old).unwrap();
        assert_eq!(abandoned(parent.path()), [folder]);
    }
}
