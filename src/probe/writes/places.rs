//! Reads the mounts, and decides which folders get a layer because a job may write to them.
//!
//! If this process may mount, layers cover the root and every other writable file system.
//!
//! If this process needs a user namespace to mount, the kernel sets two limits. It refuses a layer over a folder with
//! inherited mounts below, and an overlay cannot copy up folders of other users (since Linux 6.2, "ovl: fail on invalid
//! uid/gid mapping at copy up"). So layers cover the topmost folders that this user may write to, and everything else
//! becomes read-only.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::mount::MountFlags;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) target: PathBuf,
    pub(super) kind: Kind,
    pub(super) is_read_only: bool,
    /// The mount's own options, which must be kept in a user namespace.
    pub(super) flags: MountFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Disk,
    Memory,
    /// Kernel data, devices and sockets; no user files.
    System,
}

impl Mount {
    /// Returns true if it may have user files, and a job could write to them.
    fn is_writable(&self) -> bool {
        self.kind != Kind::System && !self.is_read_only
    }
}

/// The kernel's own file systems (`nodev` in /proc/filesystems), which hold no files of users.
const OF_THE_KERNEL: &str = "proc sysfs devtmpfs devpts cgroup cgroup2 mqueue debugfs tracefs securityfs pstore bpf \
    configfs fusectl hugetlbfs efivarfs binfmt_misc autofs rpc_pipefs nsfs fuse.lxcfs fuse.portal";

/// Folders of devices, the kernel and running services (FHS 3.0, sections 3.5, 3.15 and 6.1). Every mount in these folders is
/// [`Kind::System`].
const OF_SERVICES: &[&str] = &["/proc", "/sys", "/dev", "/run"];

/// Returns the last mount at each place (proc_pid_mountinfo(5)), parents first.
pub(super) fn read_mounts() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

fn parse(text: &[u8]) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    for mount in text.split(|byte| *byte == b'\n').filter_map(parse_line) {
        mounts.retain(|earlier| earlier.target != mount.target);
        mounts.push(mount);
    }
    // Parents come first: a layer over a parent hides the mounts below it, so these mounts are covered afterwards.
    mounts.sort_by_key(|mount| mount.target.components().count());
    mounts
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let target = PathBuf::from(OsString::from_vec(unescaped(fields.nth(4)?)));
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let file_system = String::from_utf8_lossy(rest.next()?).into_owned();
    let of_super = String::from_utf8_lossy(rest.nth(1).unwrap_or_default()).into_owned();
    let is_read_only = [&options, &of_super].iter().any(|list| list.split(',').any(|option| option == "ro"));
    let is_system = OF_THE_KERNEL.split(' ').any(|of_kernel| of_kernel == file_system)
        || OF_SERVICES.iter().any(|folder| target.starts_with(folder));
    let kind = match file_system.as_str() {
        _ if is_system => Kind::System,
        "tmpfs" | "ramfs" => Kind::Memory,
        _ => Kind::Disk,
    };
    Some(Mount { target, kind, is_read_only, flags: flags(&options) })
}

fn flags(options: &str) -> MountFlags {
    const NAMES: &[(&str, MountFlags)] = &[
        ("ro", MountFlags::RDONLY),
        ("nosuid", MountFlags::NOSUID),
        ("nodev", MountFlags::NODEV),
        ("noexec", MountFlags::NOEXEC),
        ("noatime", MountFlags::NOATIME),
        ("nodiratime", MountFlags::NODIRATIME),
        ("relatime", MountFlags::RELATIME),
    ];
    let given = options.split(',');
    given.filter_map(|option| NAMES.iter().find(|(name, _)| *name == option)).map(|(_, flag)| *flag).collect()
}

/// Decodes octal numbers such as `\040`, which stand for spaces, tabs, newlines and backslashes.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let code = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

pub(super) fn any_below(mounts: &[Mount], folder: &Path) -> bool {
    mounts.iter().any(|mount| mount.target != folder && mount.target.starts_with(folder))
}

/// How deep to look for writable folders below a mount, and how many folders to examine. Folders that are not found stay read-only;
/// folders that the job names are found at any depth. Round numbers.
const DEPTH: usize = 3;
const MOST_LOOKED_AT: usize = 4000;

/// How each folder is treated: covered by a layer, left unchanged, or read-only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// Folders to cover, parents first, each with its kind of file system.
    pub(super) covered: Vec<(PathBuf, Kind)>,
    /// Folders that stay unchanged, with everything mounted below.
    pub(super) as_they_are: Vec<PathBuf>,
    /// Mounts that become read-only.
    pub(super) read_only: Vec<Mount>,
}

/// Returns the places for a user who may mount. Mounts in `own`, the folder with the layers, are left out.
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
    let writable = || mounts.iter().filter(|mount| mount.is_writable());
    places.read_only = writable().cloned().collect();
    let mut found: BTreeSet<PathBuf> = named.iter().filter_map(|folder| topmost(folder, mounts)).collect();
    let mut queue: VecDeque<(PathBuf, usize)> =
        writable().filter(|mount| mount.target.is_dir()).map(|mount| (mount.target.clone(), 0)).collect();
    let mut looked_at = 0;
    while let Some((folder, depth)) = queue.pop_front().filter(|_| looked_at < MOST_LOOKED_AT) {
        looked_at += 1;
        if is_coverable(&folder, mounts) {
            found.insert(folder);
        } else if depth < DEPTH {
            let inner = subfolders(&folder).filter(|inner| mounts.iter().all(|mount| mount.target != *inner));
            queue.extend(inner.map(|inner| (inner, depth + 1)));
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

/// Returns the topmost folder that a layer can cover, from the root to this folder.
fn topmost(folder: &Path, mounts: &[Mount]) -> Option<PathBuf> {
    let mut way: Vec<&Path> = folder.ancestors().collect();
    way.reverse();
    way.into_iter().find(|above| is_coverable(above, mounts)).map(Path::to_owned)
}

/// Returns true if a layer in a user namespace can cover the folder: this user may write to it, and no mount lies below
/// it.
fn is_coverable(folder: &Path, mounts: &[Mount]) -> bool {
    let is_writable = mount_of(folder, mounts).is_some_and(Mount::is_writable);
    let may_write = || rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK | Access::READ_OK).is_ok();
    is_writable && folder != Path::new("/") && may_write() && !any_below(mounts, folder)
}

fn subfolders(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

pub(super) fn mount_of<'m>(folder: &Path, mounts: &'m [Mount]) -> Option<&'m Mount> {
    let holding = mounts.iter().filter(|mount| folder.starts_with(&mount.target));
    holding.max_by_key(|mount| mount.target.components().count())
}

/// Returns the folders in shared memory, in which users keep data. The files next to these folders are not covered,
/// because they are shared memory segments, also of other programs.
fn shared_memory_folders() -> impl Iterator<Item = (PathBuf, Kind)> {
    let folders = subfolders(Path::new(crate::machine::shared::FOLDER));
    folders.filter(|folder| rustix::fs::access(folder, Access::WRITE_OK).is_ok()).map(|folder| (folder, Kind::Memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_kinds_and_options() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            27 1 254:0 / / rw,noatime shared:1 - ext4 /dev/vda rw,discard\n\
            30 27 0:30 / /my\\040data rw,nosuid,nodev,relatime shared:3 master:1 - nfs4 srv:/x rw\n\
            31 27 0:31 / /tmp rw - tmpfs tmpfs rw\n\
            32 27 0:32 / /mnt/iso rw - iso9660 /dev/sr0 ro\n\
            33 27 0:33 / /run/user/1000 rw - tmpfs tmpfs rw\n\
            34 31 0:34 / /tmp rw - xfs /dev/vdb rw\nnot a mount\n";
        let mounts = parse(text);
        let kind = |path: &str| mounts.iter().find(|mount| mount.target == Path::new(path)).map(|mount| mount.kind);
        assert_eq!(kind("/"), Some(Kind::Disk));
        assert_eq!(kind("/proc"), Some(Kind::System));
        assert_eq!(kind("/my data"), Some(Kind::Disk));
        assert_eq!(kind("/tmp"), Some(Kind::Disk), "the last mount at a place counts");
        assert_eq!(kind("/run/user/1000"), Some(Kind::System));
        let of = |path: &str| mounts.iter().find(|mount| mount.target == Path::new(path)).unwrap();
        assert!(of("/mnt/iso").is_read_only && !of("/").is_read_only);
        assert_eq!(of("/my data").flags, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME);
        assert!(any_below(&mounts, Path::new("/mnt")) && !any_below(&mounts, Path::new("/tmp")));
    }

    fn mount(target: &Path, kind: Kind, is_read_only: bool) -> Mount {
        Mount { target: target.to_owned(), kind, is_read_only, flags: MountFlags::empty() }
    }

    #[test]
    fn with_the_right_to_mount_every_writable_file_system_is_covered() {
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
    fn without_the_right_to_mount_the_topmost_writable_folders_are_covered() {
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
