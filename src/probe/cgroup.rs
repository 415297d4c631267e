//! Gives a probe a control group of its own, where the kernel permits, so that one write ends all of its processes.
//!
//! Uses version 2 only (kernel documentation, admin-guide/cgroup-v2.rst; `cgroup.kill` exists since Linux 5.14).
//! Nothing depends on the group: without it, the supervisor ends the processes by its own means.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use crate::machine::process_table;

/// A control group; it is removed when dropped, if it is empty.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes a group below this process's own.
    pub(super) fn create() -> Option<Self> {
        let group = Self::of(std::process::id())?;
        fs::create_dir(&group.path).ok()?;
        // On a kernel that is too old to kill by group, dropping the group removes the folder again.
        group.path.join("cgroup.kill").exists().then_some(group)
    }

    /// The group that the supervisor with this process id has, whether it exists or not.
    pub(super) fn of(supervisor: u32) -> Option<Self> {
        Some(Self { path: Self::folder_of(supervisor)? })
    }

    /// The folder of that group.
    pub(super) fn folder_of(supervisor: u32) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        Some(own_group(&mounts, &groups)?.join(format!("{PREFIX}{supervisor}")))
    }

    /// Moves a process into the group; what it starts from then on is in it, too.
    pub(super) fn add(&self, process: Pid) {
        let _ = fs::write(self.path.join("cgroup.procs"), process.as_raw_nonzero().to_string());
    }

    /// Ends every member at once; without permission it does nothing.
    pub(super) fn kill(&self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// The prefix of all group names; the supervisor's process id follows.
const PREFIX: &str = "gputune-";

/// Removes a group. The kernel allows that only once its members are gone, which may take a moment.
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

/// Whether a group has no member that could go on: it has none, or all are ending.
fn was_killed(path: &Path) -> bool {
    let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    members.lines().filter_map(|pid| pid.parse().ok()).all(process_table::is_ending)
}

/// Ends the members of a group that a killed supervisor left, and removes it.
pub(super) fn end(path: &Path) {
    let is_ours = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
    if is_ours && path.is_dir() {
        let _ = fs::write(path.join("cgroup.kill"), "1");
        remove(path);
    }
}

/// Removes empty groups, next to those of this process's children, whose supervisor is gone.
pub(super) fn remove_empty() {
    let Some(parent) = Cgroup::folder_of(std::process::id()).and_then(|path| path.parent().map(Path::to_owned)) else {
        return;
    };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let supervisor = entry.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if supervisor.is_some_and(|pid| process_table::started(pid).is_none()) {
            // This fails while the group has a member.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The folder of this process's group in the version 2 hierarchy.
fn own_group(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (_, target, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(target))
    })?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A supervisor that a zygote forked is in the zygote's group; its own stands beside that, where gputune looks.
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
