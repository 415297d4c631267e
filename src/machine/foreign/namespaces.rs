//! Leaves the namespaces that a process was started in (unshare(2)).

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread its own mount namespace, and its own user namespace if requested. The kernel refuses a user namespace
/// to a process with several threads.
pub(crate) fn own_mounts(with_user: bool) -> rustix::io::Result<()> {
    let mut flags = UnshareFlags::NEWNS;
    flags.set(UnshareFlags::NEWUSER, with_user);
    // SAFETY: only `UnshareFlags::FILES` can take descriptors from other threads, and it is not among the flags.
    unsafe { unshare_unsafe(flags) }
}
