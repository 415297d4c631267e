//! Foreign interfaces: the only module with `unsafe`. Its interface is safe.
//!
//! Libraries are found at run time; if one is absent, broken or too old, the call that needs it returns an error.
#![expect(unsafe_code, reason = "drivers, their libraries and a few system calls have no safe interface")]

#[cfg(feature = "cuda")]
pub(crate) mod cuda;

/// Leaves the namespaces that a process was started in (unshare(2)).
pub(crate) mod namespaces {
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    /// Gives this thread its own mount namespace, and if requested its own user namespace (only in a single thread).
    pub(crate) fn own_mounts(with_user: bool) -> rustix::io::Result<()> {
        let mut flags = UnshareFlags::NEWNS;
        flags.set(UnshareFlags::NEWUSER, with_user);
        // SAFETY: only `UnshareFlags::FILES` can take descriptors from other threads, and it is not among the flags.
        unsafe { unshare_unsafe(flags) }
    }
}

/// NVML calls without a safe wrapper in `nvml-wrapper`.
pub(crate) mod nvml {
    use std::mem::MaybeUninit;

    use nvml_wrapper::Device;
    use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};

    /// Returns the used and the total memory in bytes, by the call that every driver has. Memory that the driver
    /// reserves counts as used. `Device::memory_info` separates it, but drivers before R510 lack that call.
    pub(crate) fn memory_by_first_version(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
        let call = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
        let mut memory = MaybeUninit::zeroed();
        // SAFETY: the handle and the function belong to the same library, and the structure outlives the call. The
        // structure has only integers, so zeros are a valid value.
        let memory = unsafe {
            nvml_try(call(device.handle(), memory.as_mut_ptr()))?;
            memory.assume_init()
        };
        Ok((memory.used, memory.total))
    }

    /// Returns the number of the GPU instance that a MIG device is part of.
    pub(crate) fn gpu_instance_of(device: &Device<'_>) -> Result<u32, NvmlError> {
        let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
        let mut number = 0;
        // SAFETY: the handle and the function belong to the same library, and the number outlives the call.
        nvml_try(unsafe { call(device.handle(), &raw mut number) })?;
        Ok(number)
    }

    /// Returns two flags: some failed memory rows wait to be replaced at the next restart, or cannot be replaced.
    pub(crate) fn remapped_rows(device: &Device<'_>) -> Result<(bool, bool), NvmlError> {
        let call = nvml_sym(device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref())?;
        let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
        // SAFETY: the handle and the function belong to the same library, and the numbers outlive the call.
        let code = unsafe {
            call(device.handle(), &raw mut corrected, &raw mut uncorrected, &raw mut pending, &raw mut failed)
        };
        nvml_try(code)?;
        Ok((pending != 0, failed != 0))
    }
}
