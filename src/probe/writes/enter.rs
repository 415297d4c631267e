//! Makes a probe's mount namespace in the process that becomes the command. A rehearsal tries it before any probe.
//!
//! Mounts of other processes are never affected: all mounts are made private first. The new root is built at an empty folder, and
//! everything else disappears with the old root (pivot_root(2), `pivot_root(".", ".")`). After the last process of the probe ends,
//! the kernel removes the mounts.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use serde::{Deserialize, Serialize};

use super::layout::{Layer, Layout, Refused, Stage, Step};
use crate::machine::namespaces;
use crate::probe::orders::{own_link, receive, send};

/// Enters a new namespace. The process must have a single thread.
pub(in crate::probe) fn enter(layout: &Layout) -> Result<(), Refused> {
    leave_mounts(layout.user)?;
    put_on(layout)
}

/// Enters a new namespace and returns the namespace outside its layers. From there, this process or a child can enter the
/// namespaces of other probes.
///
/// In a user namespace, that needs capabilities. The next executed command keeps them (capabilities(7), "Ambient capability set").
pub(in crate::probe) fn enter_with_way_out(layout: &Layout) -> Result<OwnedFd, Refused> {
    if layout.user.is_some() {
        leave_mounts(layout.user)?;
        keep_capabilities().map_err(refused(Stage::Namespace))?;
    }
    // The descriptor stays open when the command is executed.
    let outside = rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY, Mode::empty());
    let outside = outside.map_err(io::Error::from).map_err(refused(Stage::Namespace))?;
    leave_mounts(None)?;
    put_on(layout)?;
    Ok(outside)
}

pub(super) fn refused(stage: Stage) -> impl FnOnce(io::Error) -> Refused {
    move |error| Refused { stage, errno: error.raw_os_error().unwrap_or(0) }
}

/// Gives this process a private copy of its mounts, and a user namespace if a user and group are given.
fn leave_mounts(user: Option<(u32, u32)>) -> Result<(), Refused> {
    namespaces::own_mounts(user.is_some()).map_err(io::Error::from).map_err(refused(Stage::Namespace))?;
    if let Some((user, group)) = user {
        map(user, group).map_err(refused(Stage::Map))?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(io::Error::from).map_err(refused(Stage::Root))
}

/// Makes the next executed command keep the capabilities of this process.
fn keep_capabilities() -> io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable = sets.permitted;
    rustix::thread::set_capabilities(None, sets)?;
    for capability in sets.permitted.iter() {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Makes the mounts of a layout, and changes to the new root.
fn put_on(layout: &Layout) -> Result<(), Refused> {
    for (at, step) in layout.steps.iter().enumerate() {
        let stage = Stage::Mount { step: at, folder: step.folder().to_owned() };
        carry_out(step, layout).map_err(refused(stage))?;
    }
    turn(&layout.root).map_err(refused(Stage::Root))
}

/// Maps user and group to themselves, so that files look the same inside as outside (user_namespaces(7)).
fn map(user: u32, group: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn carry_out(step: &Step, layout: &Layout) -> io::Result<()> {
    let place = |folder: &Path| inside(&layout.root, folder);
    match step {
        Step::Everything => Ok(rustix::mount::mount_bind_recursive("/", &layout.root)?),
        Step::ReadOnly { folder, flags } => read_only(&place(folder), MountFlags::from_bits_retain(*flags)),
        Step::Layer(layer) => cover(layer, &place(&layer.folder), layout.user_attributes),
        Step::AsItIs { folder, read_only: is_read_only, whole } => {
            let target = place(folder);
            let bound = if *whole {
                rustix::mount::mount_bind_recursive(folder, &target)
            } else {
                rustix::mount::mount_bind(folder, &target)
            };
            match bound {
                // A folder that is gone, or hidden by another mount, needs no mount point.
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                bound => bound?,
            }
            if *is_read_only { read_only(&target, flags_of(&target)?) } else { Ok(()) }
        }
        Step::Empty { folder } => {
            let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            Ok(rustix::mount::mount("none", place(folder), "tmpfs", flags, Some(c"size=4k,mode=755"))?)
        }
    }
}

/// Returns the path of a folder while the new root is not the root yet.
fn inside(root: &Path, folder: &Path) -> PathBuf {
    root.join(folder.strip_prefix("/").unwrap_or(folder))
}

/// Makes a mount read-only; `kept` are its other options.
fn read_only(target: &Path, kept: MountFlags) -> io::Result<()> {
    let flags = kept | MountFlags::BIND | MountFlags::RDONLY;
    Ok(rustix::mount::mount_remount(target, flags, c"")?)
}

/// Returns the options of a mount that a mount in a user namespace must keep.
fn flags_of(target: &Path) -> io::Result<MountFlags> {
    // statvfs(3) and mount(2) use the same numbers, except for `relatime`.
    const SAME: MountFlags =
        MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC).union(MountFlags::NOATIME);
    const NO_FOLDER_TIMES: MountFlags = MountFlags::NODIRATIME;
    const RELATIVE_TIMES: u64 = 4096;
    let given = rustix::fs::statvfs(target)?.f_flag.bits();
    let mut flags =
        MountFlags::from_bits_truncate(u32::try_from(given & 0xfff).unwrap_or(0)) & (SAME | NO_FOLDER_TIMES);
    flags.set(MountFlags::RELATIME, given & RELATIVE_TIMES != 0);
    Ok(flags)
}

/// Mounts an overlay over a folder (kernel documentation, filesystems/overlayfs.rst).
fn cover(layer: &Layer, target: &Path, user_attributes: bool) -> io::Result<()> {
    if let Some(bytes) = layer.memory_bytes {
        let options = CString::new(format!("size={bytes},mode=700"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("none", &layer.store, "tmpfs", flags, Some(options.as_c_str()))?;
    }
    for folder in [layer.upper(), layer.work()] {
        fs::create_dir_all(folder)?;
    }
    let like = fs::metadata(&layer.below)?;
    make_like(&layer.upper(), &like)?;
    if layer.below != layer.folder {
        fs::create_dir_all(target)?;
    }
    // Uses file descriptors, because a comma or a colon in a path would end an option.
    let open = |path: &Path| rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let (below, upper, work) = (open(&layer.below)?, open(&layer.upper())?, open(&layer.work())?);
    let [below, upper, work] = [below.as_raw_fd(), upper.as_raw_fd(), work.as_raw_fd()];
    let mut options = format!(
        "lowerdir=/proc/self/fd/{below},upperdir=/proc/self/fd/{upper},workdir=/proc/self/fd/{work},index=off,xino=off"
    );
    // With user attributes, folders that existed before cannot be renamed.
    options += if user_attributes { ",userxattr" } else { ",redirect_dir=on,metacopy=off" };
    if !layer.is_shared {
        // The layer need not survive a crash, so nothing waits for the disk.
        options += ",volatile";
    }
    mount_overlay(target, &options)
}

fn mount_overlay(target: &Path, options: &str) -> io::Result<()> {
    let mount = |options: &str| -> io::Result<()> {
        let data = CString::new(options)?;
        Ok(rustix::mount::mount("gputune", target, "overlay", MountFlags::empty(), Some(data.as_c_str()))?)
    };
    match mount(options) {
        // `volatile` does not exist before Linux 5.10; some kernels are built without `redirect_dir`.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            let plain: Vec<&str> = options
                .split(',')
                .filter(|option| !matches!(*option, "volatile" | "redirect_dir=on" | "metacopy=off" | "xino=off"))
                .collect();
            mount(&plain.join(","))
        }
        result => result,
    }
}

/// Gives the upper folder the mode and owner of the covered folder, because the probe sees the mode and owner of the upper folder.
fn make_like(folder: &Path, like: &fs::Metadata) -> io::Result<()> {
    let now = fs::metadata(folder)?;
    if (now.uid(), now.gid()) != (like.uid(), like.gid()) {
        // A user namespace cannot make a folder of another user; the folder then belongs to this user.
        let _ = std::os::unix::fs::chown(folder, Some(like.uid()), Some(like.gid()));
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(like.permissions().mode() & 0o7777))
}

/// Makes a folder the root of the namespace, and unmounts the old root.
fn turn(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}

/// Tries a layout: writes to each layer, and opens an existing file for writing.
fn try_out(layout: &Layout, there_before: Option<&Path>) -> Result<(), Refused> {
    enter(layout)?;
    let layers = layout.steps.iter().filter_map(|step| match step {
        Step::Layer(layer) if covering(layout, layer) => Some(layer),
        _ => None,
    });
    for layer in layers {
        let stage = Stage::Write { folder: layer.folder.clone() };
        write_into(&layer.folder).map_err(refused(stage))?;
    }
    let Some(file) = there_before else { return Ok(()) };
    // Opening is enough, since it copies the file into the layer.
    let opened = File::options().write(true).open(file);
    opened.map(drop).map_err(refused(Stage::Change { file: file.to_owned() }))
}

fn covering(layout: &Layout, layer: &Layer) -> bool {
    let last = layout.steps.iter().rev().find(|step| step.folder() == layer.folder);
    last.is_some_and(|step| matches!(step, Step::Layer(found) if found == layer))
}

fn write_into(folder: &Path) -> io::Result<()> {
    let file = folder.join(format!(".gputune-{}", std::process::id()));
    fs::write(&file, "tried")?;
    if fs::read(&file)? != b"tried" {
        return Err(io::Error::from(Errno::IO));
    }
    fs::remove_file(&file)
}

/// The first argument that chooses this role of the supervisor's executable.
pub(in crate::probe) const REHEARSE: &str = "__rehearse";

/// The time limit of a rehearsal: a file system that does not answer would block it for ever. A round number.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
struct Request {
    layout: Layout,
    there_before: Option<PathBuf>,
}

/// Tries a layout; `there_before` is an existing file that the probe must be able to change.
pub(super) fn rehearse(executable: &Path, layout: &Layout, there_before: Option<&Path>) -> Result<(), Refused> {
    let request = Request { layout: layout.clone(), there_before: there_before.map(Path::to_owned) };
    ask(executable, &request).unwrap_or_else(|error| Err(refused(Stage::Rehearsal)(error)))
}

fn ask(executable: &Path, request: &Request) -> io::Result<Result<(), Refused>> {
    let (mut ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(LONGEST))?;
    let mut child = Command::new(executable)
        .arg(REHEARSE)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let told = send(&mut ours, request).and_then(|()| receive(&ours));
    if told.is_err() {
        let _ = child.kill();
    }
    child.wait()?;
    told
}

/// Runs the rehearsal: reads the layout from standard input and answers there.
pub(in crate::probe) fn answer_rehearsal() -> io::Result<()> {
    let mut link = own_link()?;
    let request: Request = receive(&link)?;
    send(&mut link, &try_out(&request.layout, request.there_before.as_deref()))
}
