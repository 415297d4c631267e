//! CUDA by cudarc: the driver's devices, cuBLASLt's matrix products, and the unsafe calls that ceilings need.
//!
//! cudarc panics if a library or a function is missing, so [`devices`] and [`find_blas`] look for them first.

mod blas;
mod error;

use std::ptr;
use std::sync::{Arc, OnceLock};

use cudarc::driver::result::{self, device};
use cudarc::driver::sys::{
    self, CUdevice_attribute as Attribute, CUmemAccess_flags, CUmemAccessDesc_st, CUmemLocation_st, CUmemLocationType,
    CUresult, CUuuid,
};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PinnedHostSlice};
use cudarc::nvrtc::Ptx;

pub(crate) use blas::{SquareProduct, find_blas};
pub use error::CudaError;
use error::DRIVER;

/// The first version of CUDA whose driver has every function called here. The newest of these functions is
/// `cuDeviceGetUuid_v2`.
const FIRST: (i32, i32) = (11, 4);

/// The driver's facts about a device. `ordinal` counts the devices that `CUDA_VISIBLE_DEVICES` leaves, in CUDA's order.
/// NVML's order differs, so match devices by UUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceFacts {
    pub ordinal: i32,
    pub name: String,
    /// The UUID with the prefix `GPU-`, also for a MIG instance: the driver does not mark instances.
    pub uuid: String,
    pub compute_capability: (i32, i32),
    pub memory_bytes: u64,
    pub multiprocessors: u32,
}

/// Loads the driver, once for the process, and returns the version of CUDA that it supports. Occupies no GPU memory.
pub(crate) fn version() -> Result<(i32, i32), CudaError> {
    static OPENED: OnceLock<Result<(i32, i32), CudaError>> = OnceLock::new();
    OPENED.get_or_init(open).clone()
}

fn open() -> Result<(i32, i32), CudaError> {
    // SAFETY: the initialisers of the library have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NotFound(DRIVER));
    }
    let mut version = 0;
    // SAFETY: the function writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    let (major, minor) = (version / 1000, version % 1000 / 10);
    if (major, minor) < FIRST {
        return Err(CudaError::TooOld(major, minor));
    }
    result::init()?;
    Ok((major, minor))
}

/// Returns the devices that programs may use; [`CudaError::NoDevice`] if the driver lists no device.
pub(crate) fn devices() -> Result<Vec<DeviceFacts>, CudaError> {
    version()?;
    match device::get_count()? {
        0 => Err(CudaError::NoDevice),
        count => (0..count).map(facts).collect(),
    }
}

fn facts(ordinal: i32) -> Result<DeviceFacts, CudaError> {
    let handle = device::get(ordinal)?;
    // SAFETY: `device::get` returned this handle.
    let attribute = |attribute| unsafe { device::get_attribute(handle, attribute) };
    Ok(DeviceFacts {
        ordinal,
        name: device::get_name(handle)?,
        uuid: uuid(device::get_uuid(handle)?),
        compute_capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        // SAFETY: `device::get` returned this handle.
        memory_bytes: unsafe { device::total_mem(handle) }? as u64,
        multiprocessors: u32::try_from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?).unwrap_or(0),
    })
}

fn uuid(uuid: CUuuid) -> String {
    let hex: String = uuid.bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Allocates zeroed host memory at a fixed address, which the device accesses without the CPU.
pub(crate) fn pinned(context: &Arc<CudaContext>, bytes: usize) -> Result<PinnedHostSlice<u8>, CudaError> {
    // SAFETY: the memory is filled with zeros below, before it is read. Flags 0: plain pinned memory.
    let mut memory = unsafe { context.alloc_pinned_with_flags::<u8>(bytes, 0) }?;
    // SAFETY: the memory is `bytes` long.
    unsafe { ptr::write_bytes(memory.as_mut_ptr()?, 0, bytes) };
    Ok(memory)
}

/// Lets a device access a peer's memory without the host; [`CudaError::NotSupported`] if the hardware cannot.
pub(crate) fn reach(device: &CudaContext, peer: &CudaContext) -> Result<(), CudaError> {
    let mut can = 0;
    // SAFETY: the function writes one integer.
    unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, device.cu_device(), peer.cu_device()) }.result()?;
    if can == 0 {
        return Err(CudaError::NotSupported("the GPUs cannot reach each other's memory".to_owned()));
    }
    if peer.has_async_alloc() {
        // cudarc allocates from the pool of the peer, which has an access list of its own.
        let id = device.cu_device();
        let access = CUmemAccessDesc_st {
            location: CUmemLocation_st { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id },
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the pool belongs to the peer, and the list has one entry.
        unsafe {
            let pool = result::device::get_mem_pool(peer.cu_device())?;
            sys::cuMemPoolSetAccess(pool, &raw const access, 1).result()?;
        }
    }
    device.bind_to_thread()?;
    // SAFETY: both contexts are alive; the flags must be 0.
    match unsafe { sys::cuCtxEnablePeerAccess(peer.cu_ctx(), 0) } {
        CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
        code => Ok(code.result()?),
    }
}

/// A kernel that does nothing, to measure the time of a launch.
#[derive(Debug)]
pub(crate) struct EmptyKernel(CudaFunction);

impl EmptyKernel {
    pub(crate) fn load(context: &Arc<CudaContext>) -> Result<Self, CudaError> {
        // The driver compiles this PTX. Each driver for the device supports the chosen target.
        let (version, target) =
            if context.compute_capability()? >= (7, 5) { ("6.3", "sm_75") } else { ("6.0", "sm_50") };
        let text =
            format!(".version {version}\n.target {target}\n.address_size 64\n.visible .entry nothing() {{ ret; }}\n");
        Ok(Self(context.load_module(Ptx::from_src(text))?.load_function("nothing")?))
    }

    /// Launches one thread of the kernel, without waiting.
    pub(crate) fn launch(&self, stream: &Arc<CudaStream>) -> Result<(), CudaError> {
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel has no parameters and touches no memory.
        unsafe { stream.launch_builder(&self.0).launch(one) }?;
        Ok(())
    }
}
