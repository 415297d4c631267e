//! Streams, which do their work in order, and events, which mark places in streams.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUstream, CUstream_flags};

use super::{CudaError, Gpu, Part, Pinned, Plain};

/// A sequence of work on a device. Work of different streams may run at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Stream(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    gpu: Gpu,
    stream: CUstream,
}

// SAFETY: the driver's calls may come from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above; the handle itself does not change.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(table) = self.gpu.enter() {
            // SAFETY: made once in `new`; work that is in it ends all the same.
            let _ = unsafe { table.cuStreamDestroy_v2(self.stream) };
        }
    }
}

impl Stream {
    /// Makes a stream that waits for no other stream.
    ///
    /// # Errors
    /// The driver fails.
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, CudaError> {
        let mut stream = ptr::null_mut();
        let table = gpu.enter()?;
        // SAFETY: it writes one handle, destroyed once.
        unsafe { table.cuStreamCreate(&raw mut stream, CUstream_flags::CU_STREAM_NON_BLOCKING as u32) }?;
        Ok(Self(Arc::new(Handle { gpu: gpu.clone(), stream })))
    }

    /// The device.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    pub(super) fn handle(&self) -> CUstream {
        self.0.stream
    }

    /// Waits until all work in it is done.
    ///
    /// # Errors
    /// Some work failed.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        let table = self.gpu().enter()?;
        // SAFETY: the handle is alive.
        unsafe { table.cuStreamSynchronize(self.0.stream) }
    }

    /// Sets the mark after the work that is in the stream now.
    ///
    /// # Errors
    /// The driver fails.
    pub(crate) fn record(&self, event: &Event) -> Result<(), CudaError> {
        let table = self.gpu().enter()?;
        // SAFETY: both handles are alive.
        unsafe { table.cuEventRecord(event.event, self.0.stream) }
    }

    /// Makes later work in this stream wait for the mark.
    ///
    /// # Errors
    /// The driver fails.
    pub(crate) fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        let table = self.gpu().enter()?;
        // SAFETY: both handles are alive; 0 is the default.
        unsafe { table.cuStreamWaitEvent(self.0.stream, event.event, 0) }
    }

    /// Copies the length of `to` from pinned memory, without waiting.
    ///
    /// # Errors
    /// `from` is shorter, or the driver fails.
    pub(crate) fn upload<T: Plain>(&self, from: &Pinned<T>, to: Part<'_>) -> Result<(), CudaError> {
        fits(to.bytes(), from.bytes())?;
        let table = self.gpu().enter()?;
        from.in_order(self, || {
            // SAFETY: both are as long as is copied; `from` outlives the copy, as it waits for it before it is changed or
            // freed.
            unsafe { table.cuMemcpyHtoDAsync_v2(to.address(), from.start(), to.bytes(), self.0.stream) }
        })
    }

    /// Copies all of `from` to pinned memory, without waiting.
    ///
    /// # Errors
    /// `to` is shorter, or the driver fails.
    pub(crate) fn download<T: Plain>(&self, from: Part<'_>, to: &mut Pinned<T>) -> Result<(), CudaError> {
        fits(from.bytes(), to.bytes())?;
        let table = self.gpu().enter()?;
        to.in_order(self, || {
            // SAFETY: as in `upload`; `to` is borrowed mutably and lets nobody read before the copy has ended.
            unsafe { table.cuMemcpyDtoHAsync_v2(to.start(), from.address(), from.bytes(), self.0.stream) }
        })
    }

    /// Copies the length of `to` from ordinary memory, and waits for the copy.
    ///
    /// # Errors
    /// `from` is shorter, or the driver fails.
    pub(crate) fn upload_slice<T: Plain>(&self, from: &[T], to: Part<'_>) -> Result<(), CudaError> {
        fits(to.bytes(), size_of_val(from))?;
        let table = self.gpu().enter()?;
        // SAFETY: both are as long as is copied, and `from` is borrowed until the copy has ended.
        unsafe { table.cuMemcpyHtoDAsync_v2(to.address(), from.as_ptr().cast(), to.bytes(), self.0.stream) }?;
        self.synchronize()
    }

    /// Copies all of `from` to ordinary memory, and waits for the copy.
    ///
    /// # Errors
    /// `to` is shorter, or the driver fails.
    pub(crate) fn download_slice<T: Plain>(&self, from: Part<'_>, to: &mut [T]) -> Result<(), CudaError> {
        fits(from.bytes(), size_of_val(to))?;
        let table = self.gpu().enter()?;
        let start: *mut c_void = to.as_mut_ptr().cast();
        // SAFETY: as in `upload_slice`; every bit pattern is a number of the kind.
        unsafe { table.cuMemcpyDtoHAsync_v2(start, from.address(), from.bytes(), self.0.stream) }?;
        self.synchronize()
    }

    /// Copies within the device or from another device, without waiting.
    ///
    /// # Errors
    /// The lengths differ, or the driver fails.
    pub(crate) fn copy(&self, from: Part<'_>, to: Part<'_>) -> Result<(), CudaError> {
        fits(from.bytes(), to.bytes())?;
        let table = self.gpu().enter()?;
        let (source, target) = (from.buffer.gpu().context(), to.buffer.gpu().context());
        if source == target {
            // SAFETY: both are as long as is copied, and in the device's memory.
            return unsafe { table.cuMemcpyDtoDAsync_v2(to.address(), from.address(), from.bytes(), self.0.stream) };
        }
        // SAFETY: as above; the contexts are those of the two buffers.
        unsafe { table.cuMemcpyPeerAsync(to.address(), target, from.address(), source, from.bytes(), self.0.stream) }
    }

    /// Sets every byte, without waiting.
    ///
    /// # Errors
    /// The driver fails.
    pub(crate) fn fill(&self, to: Part<'_>, byte: u8) -> Result<(), CudaError> {
        let table = self.gpu().enter()?;
        // SAFETY: within the buffer.
        unsafe { table.cuMemsetD8Async(to.address(), byte, to.bytes(), self.0.stream) }
    }
}

fn fits(wanted: usize, there: usize) -> Result<(), CudaError> {
    let enough = wanted <= there;
    enough.then_some(()).ok_or_else(|| CudaError::BadSize(format!("{wanted} bytes to copy, {there} on the other side")))
}

/// A mark in a stream, with its time.
#[derive(Debug)]
pub(crate) struct Event {
    gpu: Gpu,
    event: CUevent,
}

// SAFETY: the driver's calls may come from any thread.
unsafe impl Send for Event {}
// SAFETY: as above; the handle itself does not change.
unsafe impl Sync for Event {}

impl Event {
    /// Makes a mark that is not set yet; waiting for it returns at once.
    ///
    /// # Errors
    /// The driver fails.
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, CudaError> {
        let mut event = ptr::null_mut();
        let table = gpu.enter()?;
        // SAFETY: it writes one handle, destroyed once; 0 keeps the time.
        unsafe { table.cuEventCreate(&raw mut event, 0) }?;
        Ok(Self { gpu: gpu.clone(), event })
    }

    /// Waits until the work before the mark is done.
    ///
    /// # Errors
    /// That work failed.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        let table = self.gpu.enter()?;
        // SAFETY: the handle is alive.
        unsafe { table.cuEventSynchronize(self.event) }
    }

    /// Returns the seconds of device time from an earlier mark to this mark, after waiting for this mark. The clock ticks
    /// about every half microsecond.
    ///
    /// # Errors
    /// A mark was not set, or the driver fails.
    pub(crate) fn seconds_since(&self, earlier: &Self) -> Result<f64, CudaError> {
        self.synchronize()?;
        let mut milliseconds = 0.0;
        let table = self.gpu.enter()?;
        // SAFETY: it writes one number; both handles are alive.
        unsafe { table.cuEventElapsedTime(&raw mut milliseconds, earlier.event, self.event) }?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(table) = self.gpu.enter() {
            // SAFETY: made once in `new`.
            let _ = unsafe { table.cuEventDestroy_v2(self.event) };
        }
    }
}
