//! Loads and starts kernels.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmodule};

use super::driver::DriverTable;
use super::{CudaError, Gpu, Part, Program, Stream};

/// A compiled program on a device.
#[derive(Debug, Clone)]
pub(crate) struct Module(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    gpu: Gpu,
    module: CUmodule,
}

// SAFETY: the driver's calls may come from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above; the handle itself does not change.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        if let Ok(table) = self.gpu.enter() {
            // SAFETY: loaded once; its kernels hold it alive.
            let _ = unsafe { table.cuModuleUnload(self.module) };
        }
    }
}

/// One function of a [`Module`].
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    module: Module,
    function: CUfunction,
    /// The bytes of each parameter, if the driver reports them.
    parameters: Option<Vec<usize>>,
}

// SAFETY: as for the module, which it holds alive.
unsafe impl Send for Kernel {}
// SAFETY: as for the module.
unsafe impl Sync for Kernel {}

/// The number of threads that run a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Blocks in each direction.
    pub blocks: [u32; 3],
    /// Threads of a block in each direction.
    pub threads: [u32; 3],
    /// Shared memory of a block that the kernel does not declare itself, in bytes.
    pub shared_bytes: u32,
}

impl Grid {
    /// Makes a grid with at least one thread for each of `count` items, `threads` to a block.
    pub(crate) fn linear(count: usize, threads: u32) -> Self {
        let blocks = count.div_ceil(threads.max(1) as usize).clamp(1, i32::MAX as usize);
        Self {
            blocks: [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1],
            threads: [threads.max(1), 1, 1],
            shared_bytes: 0,
        }
    }
}

/// An argument of a kernel; its kind must match the kernel's parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Argument<'a> {
    /// A pointer to device memory.
    Memory(Part<'a>),
    /// `float`.
    F32(f32),
    /// `unsigned int`.
    U32(u32),
    /// `unsigned long long`, or `size_t`.
    U64(u64),
}

impl Argument<'_> {
    /// Returns how many of [`Self::bytes`] count.
    fn size(&self) -> usize {
        match self {
            Self::Memory(_) | Self::U64(_) => 8,
            Self::F32(_) | Self::U32(_) => 4,
        }
    }

    /// Returns its value with the bytes at the front, as the driver reads them.
    fn bytes(&self) -> u64 {
        let four = |bytes: [u8; 4]| {
            let mut eight = [0; 8];
            eight[..4].copy_from_slice(&bytes);
            u64::from_ne_bytes(eight)
        };
        match self {
            Self::Memory(part) => part.address(),
            Self::F32(value) => four(value.to_ne_bytes()),
            Self::U32(value) => four(value.to_ne_bytes()),
            Self::U64(value) => *value,
        }
    }
}

impl Module {
    /// Loads a program on a device.
    ///
    /// # Errors
    /// The program is not for this device or driver.
    pub(crate) fn load(gpu: &Gpu, program: &Program) -> Result<Self, CudaError> {
        let mut module = ptr::null_mut();
        let table = gpu.enter()?;
        // SAFETY: a program is a cubin, which tells its length, or PTX that ends with 0.
        unsafe { table.cuModuleLoadData(&raw mut module, program.image().as_ptr().cast()) }?;
        Ok(Self(Arc::new(Loaded { gpu: gpu.clone(), module })))
    }

    /// Returns the kernel of a name, which must be declared `extern "C"`.
    ///
    /// # Errors
    /// No kernel has this name.
    pub(crate) fn kernel(&self, name: &str) -> Result<Kernel, CudaError> {
        let name = CString::new(name).map_err(|_| CudaError::NotSupported(format!("a kernel named {name:?}")))?;
        let mut function = ptr::null_mut();
        let table = self.0.gpu.enter()?;
        // SAFETY: it writes one handle, which lives as long as the module.
        unsafe { table.cuModuleGetFunction(&raw mut function, self.0.module, name.as_ptr()) }?;
        Ok(Kernel { module: self.clone(), function, parameters: parameters(table, function) })
    }
}

/// Returns the bytes of each parameter of a kernel; `None` if the driver is older than CUDA 12.4 or does not report them.
fn parameters(table: &DriverTable, function: CUfunction) -> Option<Vec<usize>> {
    /// `CUDA_ERROR_INVALID_VALUE`, returned after the last parameter.
    const INVALID_VALUE: i32 = 1;
    /// The most bytes of parameters on all devices before CUDA 12.1 (CUDA C++ Programming Guide, "Function
    /// Parameters").
    const MOST: usize = 4096;
    let mut all = Vec::new();
    for number in 0..MOST {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: it writes two numbers; the function's module is loaded.
        match unsafe { table.cuFuncGetParamInfo(function, number, &raw mut offset, &raw mut bytes) } {
            Ok(()) => all.push(bytes),
            Err(CudaError::Failed { code: INVALID_VALUE, .. }) => return Some(all),
            Err(_) => return None,
        }
    }
    None
}

/// Returns an error if the driver would read more bytes than given. It does not read arguments after the last parameter.
fn suit(parameters: &[usize], arguments: &[Argument<'_>]) -> Result<(), CudaError> {
    if arguments.len() < parameters.len() {
        let (given, wanted) = (arguments.len(), parameters.len());
        return Err(CudaError::BadSize(format!("the kernel has {wanted} parameters, not {given}")));
    }
    let wrong = parameters.iter().zip(arguments).position(|(&bytes, argument)| bytes != argument.size());
    wrong.map_or(Ok(()), |at| {
        let (given, wanted) = (arguments[at].size(), parameters[at]);
        Err(CudaError::BadSize(format!("parameter {at} of the kernel has {wanted} bytes, not {given}")))
    })
}

impl Stream {
    /// Starts a kernel after the work already in the stream, without waiting.
    ///
    /// The kernels are part of this program and are known to stay within their buffers. A faulty kernel could make the
    /// device fail or change other buffers there, but it cannot reach host memory.
    ///
    /// The arguments do not fit the kernel, as far as the driver can tell (from CUDA 12.4 on), the kernel belongs to
    /// another device, the device cannot run the grid, or an earlier kernel failed.
    pub(crate) fn launch(&self, kernel: &Kernel, grid: Grid, arguments: &[Argument<'_>]) -> Result<(), CudaError> {
        if kernel.module.0.gpu.context() != self.gpu().context() {
            return Err(CudaError::NotSupported("a kernel that was loaded on another device".to_owned()));
        }
        kernel.parameters.as_ref().map_or(Ok(()), |parameters| suit(parameters, arguments))?;
        let mut values: Vec<u64> = arguments.iter().map(Argument::bytes).collect();
        let mut places: Vec<*mut c_void> = values.iter_mut().map(|value| ptr::from_mut(value).cast()).collect();
        let ([bx, by, bz], [tx, ty, tz]) = (grid.blocks, grid.threads);
        let table = self.gpu().enter()?;
        // SAFETY: the driver reads the arguments before it returns, as many and as long as the kernel declares. That they are
        // there was checked above; an older driver does not tell, and there it rests on the kernels and their starts being
        // of this crate, side by side.
        unsafe {
            table.cuLaunchKernel(
                kernel.function,
                bx,
                by,
                bz,
                tx,
                ty,
                tz,
                grid.shared_bytes,
                self.handle(),
                places.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_cover_what_they_are_for() {
        assert_eq!(Grid::linear(1000, 256).blocks, [4, 1, 1]);
        assert_eq!(Grid::linear(1024, 256).blocks, [4, 1, 1]);
        assert_eq!(Grid::linear(0, 256).blocks, [1, 1, 1]);
        assert_eq!(Grid::linear(7, 0).threads, [1, 1, 1]);
    }

    #[test]
    fn arguments_lie_as_the_driver_reads_them() {
        assert_eq!(Argument::U32(7).bytes().to_ne_bytes()[..4], 7_u32.to_ne_bytes());
        assert_eq!(Argument::F32(1.5).bytes().to_ne_bytes()[..4], 1.5_f32.to_ne_bytes());
        assert_eq!(Argument::U64(1 << 40).bytes(), 1 << 40);
    }

    #[test]
    fn arguments_must_be_as_many_and_as_long_as_the_parameters() {
        let (float, long) = (Argument::F32(1.0), Argument::U64(1));
        assert_eq!(suit(&[4, 8], &[float, long]), Ok(()));
        assert_eq!(suit(&[], &[]), Ok(()));
        for (parameters, arguments, part) in [
            (&[4, 8][..], &[float][..], "has 2 parameters, not 1"),
            (&[8], &[float], "parameter 0 of the kernel has 8 bytes, not 4"),
            (&[4, 4], &[float, long], "parameter 1 of the kernel has 4 bytes, not 8"),
        ] {
            let error = suit(parameters, arguments).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
