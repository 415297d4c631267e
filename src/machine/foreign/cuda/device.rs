//! The driver, and the facts about its devices that are available without occupying them.

use std::sync::OnceLock;

use cudarc::driver::result::{self, device};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUuuid};

use super::CudaError;
use super::error::DRIVER;

/// The first version of CUDA whose driver has every function that cudarc calls here; `cuDeviceGetUuid_v2` is the latest of them.
const FIRST: (i32, i32) = (11, 4);

/// The driver's facts about a device. Its number counts the devices that `CUDA_VISIBLE_DEVICES` leaves, in CUDA's order.
/// NVML's order differs, so match devices by UUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceFacts {
    /// CUDA's number.
    pub ordinal: i32,
    /// The model.
    pub name: String,
    /// `GPU-` and the identity, also for a MIG instance: the driver does not mark instances.
    pub uuid: String,
    /// Compute capability.
    pub compute_capability: (i32, i32),
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
}

/// Loads and initialises the driver, once for the process, and returns the major and minor version of CUDA that it
/// supports. It occupies no device memory.
///
/// # Errors
/// The library, a device or a permission is missing, or the driver is too old.
pub(crate) fn version() -> Result<(i32, i32), CudaError> {
    static OPENED: OnceLock<Result<(i32, i32), CudaError>> = OnceLock::new();
    OPENED.get_or_init(open).clone()
}

fn open() -> Result<(i32, i32), CudaError> {
    // SAFETY: the initialisers of the library have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NotFound { library: DRIVER });
    }
    let mut version = 0;
    // SAFETY: it writes one integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    let (major, minor) = (version / 1000, version % 1000 / 10);
    if (major, minor) < FIRST {
        return Err(CudaError::TooOld { major, minor });
    }
    result::init()?;
    Ok((major, minor))
}

/// Returns the devices that may be used.
///
/// # Errors
/// The driver fails, or [`CudaError::NoDevice`] if it shows no device.
pub(crate) fn devices() -> Result<Vec<DeviceFacts>, CudaError> {
    version()?;
    match device::get_count()? {
        0 => Err(CudaError::NoDevice),
        count => (0..count).map(facts).collect(),
    }
}

fn facts(ordinal: i32) -> Result<DeviceFacts, CudaError> {
    let handle = device::get(ordinal)?;
    // SAFETY: the handle is a device's.
    let attribute = |attribute| unsafe { device::get_attribute(handle, attribute) };
    Ok(DeviceFacts {
        ordinal,
        name: device::get_name(handle)?,
        uuid: uuid(device::get_uuid(handle)?),
        compute_capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        // SAFETY: as above.
        memory_bytes: unsafe { device::total_mem(handle) }? as u64,
        multiprocessors: u32::try_from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?).unwrap_or(0),
    })
}

fn uuid(uuid: CUuuid) -> String {
    let hex: String = uuid.bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
