//! Foreign interfaces: the only module with `unsafe`. Its interface is safe.
//!
//! Libraries are found at run time; if one is absent, broken or too old, the call that needs it returns an error.
#![expect(unsafe_code, reason = "drivers, their libraries and a few system calls have no safe interface")]

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod nvml;

/// Leaves the namespaces that a process was started in (unshare(2)).
pub(crate) mod namespaces {
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    /// Gives this thread its own mount namespace, and its own user namespace if requested. The kernel refuses a user namespace
    /// to a process with several threads.
    pub(crate) fn own_mounts(with_user: bool) -> rustix::io::Result<()> {
        let mut flags = UnshareFlags::NEWNS;
        flags.set(UnshareFlags::NEWUSER, with_user);
        // SAFETY: only `UnshareFlags::FILES` can take descriptors from other threads, and it is not among the flags.
        unsafe { unshare_unsafe(flags) }
    }
}
