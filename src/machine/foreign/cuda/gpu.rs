//! A device in use.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::driver::DriverTable;
use super::{CudaError, DeviceFacts, Driver};

/// A device with its primary context. The context occupies some hundred MiB of device memory until the last clone and
/// everything made from it are dropped.
#[derive(Debug, Clone)]
pub(crate) struct Gpu(Arc<Context>);

#[derive(Debug)]
struct Context {
    driver: Driver,
    device: CUdevice,
    context: CUcontext,
    facts: DeviceFacts,
}

// SAFETY: the driver's calls may come from any thread; the context is made current before each.
unsafe impl Send for Context {}
// SAFETY: as above; nothing is changed after opening.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; whatever uses the context holds it alive.
        let _ = unsafe { self.driver.table.cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Gpu {
    /// Opens a device. `ordinal` is CUDA's number among the devices that `CUDA_VISIBLE_DEVICES` leaves.
    ///
    /// # Errors
    /// The driver fails, or no such device exists.
    pub(crate) fn open(ordinal: i32) -> Result<Self, CudaError> {
        let driver = Driver::open()?;
        let facts = driver.devices()?.into_iter().find(|facts| facts.ordinal == ordinal).ok_or(CudaError::NoDevice)?;
        let device = driver.handle(ordinal)?;
        let mut context = ptr::null_mut();
        // SAFETY: it writes one handle; released when the last user is gone.
        unsafe { driver.table.cuDevicePrimaryCtxRetain(&raw mut context, device) }?;
        Ok(Self(Arc::new(Context { driver, device, context, facts })))
    }

    /// Returns the driver's facts about the device.
    pub(crate) fn facts(&self) -> &DeviceFacts {
        &self.0.facts
    }

    /// Returns the driver's functions, with this device's context current on the calling thread.
    pub(super) fn enter(&self) -> Result<&'static DriverTable, CudaError> {
        let table = self.0.driver.table;
        // SAFETY: the context lives as long as `self`.
        unsafe { table.cuCtxSetCurrent(self.0.context) }?;
        Ok(table)
    }

    pub(super) fn context(&self) -> CUcontext {
        self.0.context
    }

    /// Returns free and total memory, in bytes.
    ///
    /// # Errors
    /// The driver fails.
    pub(crate) fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0, 0);
        let table = self.enter()?;
        // SAFETY: it writes two numbers.
        unsafe { table.cuMemGetInfo_v2(&raw mut free, &raw mut total) }?;
        Ok((free as u64, total as u64))
    }

    /// Lets this device access another device's memory directly, without going through the host.
    ///
    /// # Errors
    /// [`CudaError::NotSupported`] if these two devices cannot.
    pub(crate) fn reach(&self, other: &Self) -> Result<(), CudaError> {
        let table = self.enter()?;
        let mut can = 0;
        // SAFETY: it writes one integer.
        unsafe { table.cuDeviceCanAccessPeer(&raw mut can, self.0.device, other.0.device) }?;
        if can == 0 {
            return Err(CudaError::NotSupported("the GPUs cannot reach each other's memory".to_owned()));
        }
        /// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
        const ALREADY: i32 = 704;
        // SAFETY: both contexts are alive; 0 is the only flag.
        match unsafe { table.cuCtxEnablePeerAccess(other.0.context, 0) } {
            Err(CudaError::Failed { code: ALREADY, .. }) => Ok(()),
            result => result,
        }
    }
}
