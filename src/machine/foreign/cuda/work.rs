//! The calls for which cudarc asks for `unsafe`: pinned memory, launches, and access to another device's memory.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUmemAccess_flags, CUmemAccessDesc_st, CUmemLocation_st, CUmemLocationType, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PinnedHostSlice, result};
use cudarc::nvrtc::Ptx;

use super::CudaError;

/// Allocates zeroed host memory at a fixed address, which the device accesses without the CPU.
///
/// # Errors
/// The memory does not suffice.
pub(crate) fn pinned(context: &Arc<CudaContext>, bytes: usize) -> Result<PinnedHostSlice<u8>, CudaError> {
    // SAFETY: the memory is written below, before anybody reads it. 0 asks for no special kind.
    let mut memory = unsafe { context.alloc_pinned_with_flags::<u8>(bytes, 0) }?;
    // SAFETY: the memory is `bytes` long.
    unsafe { ptr::write_bytes(memory.as_mut_ptr()?, 0, bytes) };
    Ok(memory)
}

/// Lets a device access a peer's memory directly, without going through the host.
///
/// # Errors
/// [`CudaError::NotSupported`] if these two devices cannot.
pub(crate) fn reach(device: &CudaContext, peer: &CudaContext) -> Result<(), CudaError> {
    let mut can = 0;
    // SAFETY: it writes one integer.
    unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, device.cu_device(), peer.cu_device()) }.result()?;
    if can == 0 {
        return Err(CudaError::NotSupported("the GPUs cannot reach each other's memory".to_owned()));
    }
    if peer.has_async_alloc() {
        // cudarc allocates from the device's pool, which has an access list of its own.
        let access = CUmemAccessDesc_st {
            location: CUmemLocation_st {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: device.cu_device(),
            },
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the device is the peer's, and the list has one entry.
        unsafe {
            let pool = result::device::get_mem_pool(peer.cu_device())?;
            sys::cuMemPoolSetAccess(pool, &raw const access, 1).result()?;
        }
    }
    device.bind_to_thread()?;
    // SAFETY: both contexts are alive; 0 is the only flag.
    match unsafe { sys::cuCtxEnablePeerAccess(peer.cu_ctx(), 0) } {
        CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
        code => Ok(code.result()?),
    }
}

/// A kernel that does nothing.
#[derive(Debug)]
pub(crate) struct EmptyKernel(CudaFunction);

impl EmptyKernel {
    /// Loads the kernel.
    ///
    /// # Errors
    /// The driver fails.
    pub(crate) fn load(context: &Arc<CudaContext>) -> Result<Self, CudaError> {
        // The driver translates the text; every driver for the device knows this target.
        let (version, target) =
            if context.compute_capability()? >= (7, 5) { ("6.3", "sm_75") } else { ("6.0", "sm_50") };
        let text =
            format!(".version {version}\n.target {target}\n.address_size 64\n.visible .entry nothing() {{ ret; }}\n");
        Ok(Self(context.load_module(Ptx::from_src(text))?.load_function("nothing")?))
    }

    /// Launches one thread of it, without waiting.
    ///
    /// # Errors
    /// The driver fails.
    pub(crate) fn launch(&self, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel has no parameters and touches no memory.
        unsafe { stream.launch_builder(&self.0).launch(one) }?;
        Ok(())
    }
}
