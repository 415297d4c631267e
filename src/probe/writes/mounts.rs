//! Reads the mounts from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

/// A visible mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) target: PathBuf,
    pub(super) kind: Kind,
    pub(super) is_read_only: bool,
    /// The mount's own options, which must be kept in a user namespace.
    pub(super) flags: MountFlags,
}

/// The content of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Files on a local or remote disk.
    Disk,
    /// Files in memory.
    Memory,
    /// Information of the kernel and of services, devices and sockets: no files of users.
    System,
}

/// The kernel's own file systems (`nodev` in /proc/filesystems), which hold no files of users.
const OF_THE_KERNEL: &[&str] = &[
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "mqueue",
    "debugfs",
    "tracefs",
    "securityfs",
    "pstore",
    "bpf",
    "configfs",
    "fusectl",
    "hugetlbfs",
    "efivarfs",
    "binfmt_misc",
    "autofs",
    "rpc_pipefs",
    "nsfs",
    "fuse.lxcfs",
    "fuse.portal",
];

/// Folders of devices, the kernel and running services, for any mount on them (FHS 3.0, sections 3.5, 3.15 and 6.1).
pub(super) const OF_SERVICES: &[&str] = &["/proc", "/sys", "/dev", "/run"];

/// Returns all visible mounts in the order of their creation. At each place, only the last mount is returned.
pub(super) fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

fn parse(text: &[u8]) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    for mount in text.split(|byte| *byte == b'\n').filter_map(parse_line) {
        mounts.retain(|earlier| earlier.target != mount.target);
        mounts.push(mount);
    }
    // A mount hides earlier mounts below it.
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
    let is_system =
        OF_THE_KERNEL.contains(&file_system.as_str()) || OF_SERVICES.iter().any(|folder| target.starts_with(folder));
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

/// Returns true if anything is mounted below a folder.
pub(super) fn any_below(mounts: &[Mount], folder: &Path) -> bool {
    mounts.iter().any(|mount| mount.target != folder && mount.target.starts_with(folder))
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
}
