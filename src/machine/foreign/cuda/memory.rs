//! Memory of the device, and pinned host memory that the device can access directly.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;

use cudarc::driver::sys::CUdeviceptr;

use super::stream::Stream;
use super::{CudaError, Event, Gpu};

mod sealed {
    /// Number types for which every bit pattern is valid.
    pub(crate) trait Plain: Copy + Send + Sync + 'static {}
}

/// Number types that can be copied to the device and back byte by byte.
pub(crate) trait Plain: sealed::Plain {}

macro_rules! plain {
    ($($kind:ty),*) => { $(impl sealed::Plain for $kind {} impl Plain for $kind {})* };
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// Memory of a device. Kernels and copies may change it while it is borrowed; later work on the same stream sees their
/// results.
#[derive(Debug)]
pub(crate) struct Buffer {
    gpu: Gpu,
    address: CUdeviceptr,
    bytes: usize,
}

/// A part of a [`Buffer`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(super) buffer: &'a Buffer,
    offset: usize,
    bytes: usize,
}

impl Buffer {
    /// Allocates memory with undefined content.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] if the memory does not suffice.
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Result<Self, CudaError> {
        let table = gpu.enter()?;
        let mut address = 0;
        // SAFETY: it writes one address; freed once, in `drop`. Memory of no length cannot be asked for.
        let taken = unsafe { table.cuMemAlloc_v2(&raw mut address, bytes.max(1)) };
        taken.map_err(|error| error.asking(bytes))?;
        Ok(Self { gpu: gpu.clone(), address, bytes })
    }

    /// Its length, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the whole buffer.
    pub(crate) fn all(&self) -> Part<'_> {
        Part { buffer: self, offset: 0, bytes: self.bytes }
    }

    /// Returns `bytes` bytes from byte `offset` on.
    ///
    /// # Errors
    /// [`CudaError::BadSize`] if it reaches beyond the end.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Result<Part<'_>, CudaError> {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let part = Part { buffer: self, offset, bytes };
        fits.then_some(part).ok_or_else(|| CudaError::BadSize(format!("{bytes} bytes at {offset} of {}", self.bytes)))
    }

    pub(super) fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Ok(table) = self.gpu.enter() {
            // SAFETY: taken once in `new`. The driver lets work that still uses it end first.
            let _ = unsafe { table.cuMemFree_v2(self.address) };
        }
    }
}

impl Part<'_> {
    /// Its length, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.buffer.address + self.offset as CUdeviceptr
    }

    /// Returns an error if it is shorter than `bytes`.
    pub(super) fn holds(&self, bytes: usize, what: &str) -> Result<(), CudaError> {
        let enough = self.bytes >= bytes;
        enough
            .then_some(())
            .ok_or_else(|| CudaError::BadSize(format!("{what} takes {bytes} bytes, not {}", self.bytes)))
    }
}

/// Host memory at a fixed address, so that the device can copy from and to it without the CPU.
#[derive(Debug)]
pub(crate) struct Pinned<T: Plain> {
    gpu: Gpu,
    start: NonNull<T>,
    length: usize,
    /// The end of the last copy. Each copy waits for the previous copy, and the host for the last copy.
    copied: Event,
}

// SAFETY: it owns its memory, like a `Vec<T>`, and `T` can be sent.
unsafe impl<T: Plain> Send for Pinned<T> {}

impl<T: Plain> Pinned<T> {
    /// Allocates memory for `length` numbers, all of them 0.
    ///
    /// # Errors
    /// [`CudaError::OutOfHostMemory`] if the memory does not suffice.
    pub(crate) fn new(gpu: &Gpu, length: usize) -> Result<Self, CudaError> {
        let too_long = || CudaError::BadSize(format!("{length} numbers are too many"));
        let bytes = length.checked_mul(size_of::<T>()).ok_or_else(too_long)?.max(1);
        let copied = Event::new(gpu)?;
        let table = gpu.enter()?;
        let mut start: *mut c_void = ptr::null_mut();
        // SAFETY: it writes one address; freed once, in `drop`. 0 asks for no special kind.
        unsafe { table.cuMemHostAlloc(&raw mut start, bytes, 0) }.map_err(|error| error.asking(bytes))?;
        let start = NonNull::new(start.cast::<T>()).ok_or(CudaError::OutOfHostMemory { bytes: bytes as u64 })?;
        // SAFETY: `bytes` long. Pages are far better aligned than any number.
        unsafe { ptr::write_bytes(start.as_ptr().cast::<u8>(), 0, bytes) };
        Ok(Self { gpu: gpu.clone(), start, length, copied })
    }

    /// Returns its content for changes, once the last copy has ended.
    ///
    /// # Errors
    /// The copy failed.
    pub(crate) fn write(&mut self) -> Result<&mut [T], CudaError> {
        self.copied.synchronize()?;
        // SAFETY: `length` numbers that were written in `new`; the device reads and writes only during copies, the last of
        // which has ended, and a new one needs the borrow that this holds.
        Ok(unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) })
    }

    pub(super) fn start(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }

    pub(super) fn bytes(&self) -> usize {
        self.length * size_of::<T>()
    }

    /// Enqueues a copy after the previous copy and before all work that waits for it.
    pub(super) fn in_order(
        &self,
        stream: &Stream,
        copy: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        stream.wait_for(&self.copied)?;
        copy()?;
        stream.record(&self.copied)
    }
}

impl<T: Plain> Drop for Pinned<T> {
    fn drop(&mut self) {
        // A running copy must end before the memory is freed.
        let _ = self.copied.synchronize();
        if let Ok(table) = self.gpu.enter() {
            // SAFETY: taken once in `new`; no copy is under way.
            let _ = unsafe { table.cuMemFreeHost(self.start.as_ptr().cast()) };
        }
    }
}
