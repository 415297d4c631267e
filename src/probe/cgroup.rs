//! Puts each probe into its own control group if the kernel permits it, so that one write ends all of its processes.
//!
//! Uses version 2 only (kernel documentation, admin-guide/cgroup-v2.rst; `cgroup.kill` exists since Linux 5.14).
//! The group is optional: without it, the supervisor ends the processes itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use crate::machine::process_table;

/// A control group. Dropping it removes the group if it is empty.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    pub(super) fn create() -> Option<Self> {
        let group = Self { path: Self::folder_of(std::process::id())? };
        fs::create_dir(&group.path).ok()?;
        // Dropping the group removes the folder again if the kernel is too old to kill by group.
        group.path.join("cgroup.kill").exists().then_some(group)
    }

    /// Returns the folder of the group of the supervisor with this process id, even if the group does not exist.
    pub(super) fn folder_of(supervisor: u32) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        Some(own_group(&mounts, &groups)?.join(format!("{PREFIX}{supervisor}")))
    }

    /// Moves a process into the group. Its later children also start in the group.
    pub(super) fn add(&self, process: Pid) {
        let _ = fs::write(self.path.join("cgroup.procs"), process.as_raw_nonzero().to_string());
    }

    /// Ends every member at once. Does nothing if the permission is missing.
    pub(super) fn kill(&self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// The prefix of all group names. The supervisor's process id follows.
const PREFIX: &str = "gputune-";

/// Removes a group. The kernel allows that only after the members are gone, which may take a moment.
fn remove(path: &Path) {
    const ROUNDS: u32 = 400;
    for _ in 0..ROUNDS {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && was_killed(path) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            _ => return,
        }
    }
}

/// Returns true if no member of the group can continue: the group is empty, or all members are ending.
fn was_killed(path: &Path) -> bool {
    let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    members.lines().filter_map(|pid| pid.parse().ok()).all(process_table::is_ending)
}

/// Ends the members of a group that a killed supervisor left, and removes the group.
pub(super) fn end(path: &Path) {
    let is_ours = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
    if is_ours && path.is_dir() {
        let _ = fs::write(path.join("cgroup.kill"), "1");
        remove(path);
    }
}

/// Removes the empty groups of dead supervisors, in the folder that holds the groups of this process's children.
pub(super) fn remove_empty() {
    let own = Cgroup::folder_of(std::process::id());
    let Some(parent) = own.as_deref().and_then(Path::parent) else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let supervisor = entry.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if supervisor.is_some_and(|pid| process_table::started(pid).is_none()) {
            // Removing a group with members fails.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn own_group(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mut fields = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mount = fields.find(|fields| fields.get(2) == Some(&"cgroup2")).map(|fields| PathBuf::from(fields[1]))?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A zygote's child starts in the zygote's group. gputune looks for the child's own group next to that group.
    let is_ours = |name: &str| name.strip_prefix(PREFIX).is_some_and(|pid| pid.parse::<u32>().is_ok());
    let group = group.rsplit_once('/').filter(|(_, name)| is_ours(name)).map_or(group, |(parent, _)| parent);
    Some(mount.join(group.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_below_the_mount() {
        let mounts = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(own_group(mounts, "0::/user.slice/a\n"), Some(PathBuf::from("/sys/fs/cgroup/user.slice/a")));
        assert_eq!(own_group(mounts, "12:memory:/x\n0::/\n"), Some(PathBuf::from("/sys/fs/cgroup/")));
        assert_eq!(own_group("proc /proc proc rw 0 0\n", "0::/\n"), None);
    }

    #[test]
    fn an_empty_group_goes_when_dropped() {
        if let Some(group) = Cgroup::create() {
            let path = group.path.clone();
            assert!(path.exists());
            drop(group);
            assert!(!path.exists());
        }
    }
}
