//! Decides which folders get a layer because a job may write to them.
//!
//! If this process may mount, layers cover the root and every other writable file system. If it needs a user namespace for that,
//! the kernel refuses a layer over folders with inherited mounts below. It also cannot copy up folders of other users (since Linux
//! 6.2, "ovl: fail on invalid uid/gid mapping at copy up"). Then layers cover the topmost folders that this user may write to, and
//! everything else becomes read-only.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::mounts::{Kind, Mount, any_below};

/// How deep to look for writable folders below a mount, and how many folders to examine. Folders that are not found stay read-only;
/// folders that the job names are found at any depth. Round numbers.
const DEPTH: usize = 3;
const MOST_LOOKED_AT: usize = 4000;

/// The folders in which layers, and so writes, are possible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// Folders to cover, parents first, each with its kind of file system.
    pub(super) covered: Vec<(PathBuf, Kind)>,
    /// Mounts that stay unchanged, with everything mounted below.
    pub(super) as_they_are: Vec<PathBuf>,
    /// Mounts that become read-only.
    pub(super) read_only: Vec<Mount>,
}

/// Returns the places for a user who may mount.
pub(super) fn of_mounts(mounts: &[Mount], own: &Path) -> Places {
    let mut places = Places::default();
    for mount in mounts {
        let target = &mount.target;
        if places.as_they_are.iter().any(|whole| target.starts_with(whole)) || target.starts_with(own) {
            continue;
        }
        if mount.kind == Kind::System {
            places.as_they_are.push(target.clone());
        } else if mount.is_read_only || !target.is_dir() {
            places.read_only.push(mount.clone());
        } else {
            places.covered.push((target.clone(), mount.kind));
        }
    }
    places.covered.extend(shared_memory_folders());
    places
}

/// Returns the places for a user who may mount only in a user namespace; `named` are folders that the job is known to use.
pub(super) fn of_user(mounts: &[Mount], named: &[PathBuf]) -> Places {
    let mut places = Places::default();
    let real = |mount: &&Mount| mount.kind != Kind::System && !mount.is_read_only;
    places.read_only = mounts.iter().filter(real).cloned().collect();
    let mut found: BTreeSet<PathBuf> = named.iter().filter_map(|folder| topmost(folder, mounts)).collect();
    let mut queue: VecDeque<(PathBuf, usize)> =
        mounts.iter().filter(real).filter(|mount| mount.target.is_dir()).map(|m| (m.target.clone(), 0)).collect();
    let mut looked_at = 0;
    while let Some((folder, depth)) = queue.pop_front().filter(|_| looked_at < MOST_LOOKED_AT) {
        looked_at += 1;
        if is_coverable(&folder, mounts) {
            found.insert(folder);
        } else if depth < DEPTH {
            queue.extend(folders_in(&folder, mounts).map(|inner| (inner, depth + 1)));
        }
    }
    // A covered folder covers everything in it except other mounts, which have their own layers.
    let covered = found.iter().filter(|folder| {
        let device = mount_of(folder, mounts).map(|mount| &mount.target);
        !folder
            .ancestors()
            .skip(1)
            .any(|above| found.contains(above) && mount_of(above, mounts).map(|mount| &mount.target) == device)
    });
    let kind = |folder: &Path| mount_of(folder, mounts).map_or(Kind::Disk, |mount| mount.kind);
    let mut covered: BTreeSet<PathBuf> = covered.cloned().collect();
    let strangers: Vec<PathBuf> = named.iter().flat_map(|folder| strangers_above(folder, &covered, mounts)).collect();
    covered.extend(strangers);
    places.covered = covered.into_iter().map(|folder| (folder.clone(), kind(&folder))).collect();
    places.covered.extend(shared_memory_folders());
    places
}

/// Returns folders of other users between a covered folder and this folder. They cannot be copied up, so each has its own layer.
fn strangers_above(folder: &Path, covered: &BTreeSet<PathBuf>, mounts: &[Mount]) -> Vec<PathBuf> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let is_strange =
        |above: &Path| fs::metadata(above).is_ok_and(|data| data.is_dir() && (data.uid(), data.gid()) != (user, group));
    let is_inside = |above: &Path| covered.iter().any(|place| above != place && above.starts_with(place));
    let above = folder.ancestors().filter(|above| is_inside(above) && is_strange(above) && !any_below(mounts, above));
    above.map(Path::to_owned).collect()
}

/// Returns the topmost parent of this folder that can be covered.
fn topmost(folder: &Path, mounts: &[Mount]) -> Option<PathBuf> {
    let mut way: Vec<&Path> = folder.ancestors().collect();
    way.reverse();
    way.into_iter().find(|above| is_coverable(above, mounts)).map(Path::to_owned)
}

fn is_coverable(folder: &Path, mounts: &[Mount]) -> bool {
    let is_real = mount_of(folder, mounts).is_some_and(|mount| mount.kind != Kind::System && !mount.is_read_only);
    let may_write = || rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK | Access::READ_OK).is_ok();
    is_real && folder != Path::new("/") && may_write() && !any_below(mounts, folder)
}

/// Returns the subfolders of a folder, without other mounts.
fn folders_in<'m>(folder: &Path, mounts: &'m [Mount]) -> impl Iterator<Item = PathBuf> + use<'m> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    folders.filter(|inner| mounts.iter().all(|mount| mount.target != *inner))
}

/// Returns the mount that contains a folder.
pub(super) fn mount_of<'m>(folder: &Path, mounts: &'m [Mount]) -> Option<&'m Mount> {
    let holding = mounts.iter().filter(|mount| folder.starts_with(&mount.target));
    holding.max_by_key(|mount| mount.target.components().count())
}

/// Returns folders in shared memory: data that a user put there for fast reading. Segments next to them are shared with other
/// programs, and stay unchanged.
fn shared_memory_folders() -> impl Iterator<Item = (PathBuf, Kind)> {
    let entries = fs::read_dir(crate::machine::shared::FOLDER).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    folders.filter(|folder| rustix::fs::access(folder, Access::WRITE_OK).is_ok()).map(|folder| (folder, Kind::Memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::MountFlags;

    fn mount(target: &Path, kind: Kind, is_read_only: bool) -> Mount {
        Mount { target: target.to_owned(), kind, is_read_only, flags: MountFlags::empty() }
    }

    #[test]
    fn who_may_mount_covers_every_file_system_that_can_be_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let file = path("resolv.conf");
        fs::write(&file, "").unwrap();
        for name in ["data", "iso", "tmp", "own"] {
            fs::create_dir(path(name)).unwrap();
        }
        let mounts = [
            mount(Path::new("/"), Kind::Disk, false),
            mount(Path::new("/proc"), Kind::System, false),
            mount(Path::new("/proc/sys/fs/binfmt_misc"), Kind::System, false),
            mount(&path("data"), Kind::Disk, false),
            mount(&path("iso"), Kind::Disk, true),
            mount(&path("tmp"), Kind::Memory, false),
            mount(&file, Kind::Disk, false),
            mount(&path("own"), Kind::Disk, false),
        ];
        let places = of_mounts(&mounts, &path("own"));
        let covered: Vec<_> = places.covered.iter().filter(|(place, _)| !place.starts_with("/dev/shm")).collect();
        let expected = [("/".into(), Kind::Disk), (path("data"), Kind::Disk), (path("tmp"), Kind::Memory)];
        assert_eq!(covered, expected.iter().collect::<Vec<_>>());
        assert_eq!(places.as_they_are, [PathBuf::from("/proc")]);
        let read_only: Vec<_> = places.read_only.iter().map(|mount| mount.target.clone()).collect();
        assert_eq!(read_only, [path("iso"), file]);
    }

    #[test]
    fn who_may_not_covers_the_topmost_folders_that_can_be_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home/me");
        fs::create_dir_all(home.join("project/data")).unwrap();
        let mounts = [mount(Path::new("/"), Kind::Disk, false), mount(&home.join("project/data"), Kind::Disk, false)];
        // A folder with a mount below cannot be covered itself.
        let project = home.join("project");
        let places = of_user(&mounts, std::slice::from_ref(&project));
        let covered: Vec<_> = places.covered.iter().map(|(place, _)| place.as_path()).collect();
        assert!(covered.contains(&home.join("project/data").as_path()), "{covered:?}");
        assert!(!covered.contains(&project.as_path()) && !covered.contains(&Path::new("/")), "{covered:?}");
        let places = of_user(&mounts[..1], &[home.join("project/data")]);
        let above: Vec<_> = places.covered.iter().filter(|(place, _)| home.starts_with(place)).collect();
        assert_eq!(above.len(), 1, "one layer covers it: {places:?}");
    }
}
