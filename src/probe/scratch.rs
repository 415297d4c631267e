//! A probe's scratch folder. It holds the socket, the hook, and the notes for cleaning up after a gputune that was killed.
//!
//! Only its user may enter it, whatever the umask. The gputune that made the folder keeps the file `owner` in it
//! locked. The kernel releases the lock when that gputune ends, even if it is killed. So a folder with an unlocked file
//! `owner` is abandoned.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ProbeError;
use super::cgroup::Cgroup;
use crate::machine::process_table;

/// The prefix of all scratch folders.
pub(super) const PREFIX: &str = "gputune-";

/// The file that is locked while the folder's gputune lives.
pub(super) const OWNER: &str = "owner";

/// The file with the notes for cleaning up.
pub(super) const NOTE: &str = "tidy.json";

/// The longest path of the parent folder: the path of a socket has at most 107 bytes (unix(7)).
const LONGEST: usize = 80;

/// A scratch folder, which is removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: tempfile::TempDir,
    _owner: File,
}

/// The processes of a probe, for the gputune that cleans up after it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) supervisor: u32,
    /// The start time of the supervisor, in clock ticks since boot, because another process may get its process id.
    pub(super) started: u64,
    /// The id of the boot, because process ids are only valid within one boot.
    pub(super) boot: String,
    /// The process id namespace in which `supervisor` is valid.
    pub(super) namespace: String,
    /// The path of the probe's control group, even if the group does not exist.
    pub(super) cgroup: Option<PathBuf>,
}

/// Returns the folders that may contain scratch folders. The first contains new scratch folders.
pub(super) fn parents() -> Vec<PathBuf> {
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
            let owner = claim(folder.path(), OWNER)?;
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
    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(NOTE)).ok()?).ok()
    }

    /// Returns the supervisor if it is alive and visible here.
    pub(super) fn living_supervisor(&self) -> Option<u32> {
        let is_here = self.boot == boot() && self.namespace == namespace();
        let is_it = is_here && self.started > 0 && process_table::started(self.supervisor) == Some(self.started);
        is_it.then_some(self.supervisor)
    }
}

/// Makes and locks the file that marks the owner of a folder, until the returned file is dropped. The file gets its name only
/// after it is locked, so no other process can find it unlocked while this process lives.
pub(super) fn claim(folder: &Path, name: &str) -> io::Result<File> {
    let unlocked = folder.join(format!(".tmp-{name}"));
    let owner = File::create_new(&unlocked)?;
    owner.lock()?;
    fs::rename(unlocked, folder.join(name))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_number_of_the_supervisor_is_not_the_supervisor() {
        let (scratch, own) = (Scratch::new().unwrap(), std::process::id());
        scratch.note(own);
        let note = Note::read(scratch.path()).unwrap();
        assert_eq!(note.living_supervisor(), Some(own));
        assert_eq!(Note { started: note.started + 1, ..note }.living_supervisor(), None);
    }
}
