//! The driver, and the facts about its devices that are available without occupying them.

use std::ffi::{c_char, c_int};
use std::fmt;
use std::sync::OnceLock;

use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUuuid};

use super::CudaError;
use super::driver::DriverTable;

/// The CUDA driver of this process. Opening it occupies no device memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Driver {
    pub(super) table: &'static DriverTable,
}

/// The version of CUDA that a driver supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DriverVersion {
    /// Such as the 13 of 13.0.
    pub major: i32,
    /// Such as the 0 of 13.0.
    pub minor: i32,
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The driver's facts about a device. Its number counts the devices that `CUDA_VISIBLE_DEVICES` leaves, in CUDA's order.
/// NVML's order differs, so match devices by UUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceFacts {
    /// CUDA's number.
    pub ordinal: i32,
    /// The model.
    pub name: String,
    /// `GPU-` or `MIG-` and the identity, as NVML writes it; `None` if the driver does not report it.
    pub uuid: Option<String>,
    /// Compute capability.
    pub compute_capability: (i32, i32),
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Such as `0000:01:00.0`.
    pub pci_bus: Option<String>,
}

impl Driver {
    /// Loads and initialises the driver, once for the process.
    ///
    /// # Errors
    /// The library, a function, a device or a permission is missing.
    pub(crate) fn open() -> Result<Self, CudaError> {
        static DRIVER: OnceLock<Result<DriverTable, CudaError>> = OnceLock::new();
        let opened = DRIVER.get_or_init(|| {
            let table = DriverTable::load()?;
            // SAFETY: 0 is the only flag.
            unsafe { table.cuInit(0) }?;
            Ok(table)
        });
        opened.as_ref().map(|table| Self { table }).map_err(Clone::clone)
    }

    /// Returns the version of CUDA that it supports.
    ///
    /// # Errors
    /// The driver fails.
    pub(crate) fn version(&self) -> Result<DriverVersion, CudaError> {
        let mut version = 0;
        // SAFETY: it writes one integer.
        unsafe { self.table.cuDriverGetVersion(&raw mut version) }?;
        Ok(DriverVersion { major: version / 1000, minor: version % 1000 / 10 })
    }

    /// Returns the devices that may be used.
    ///
    /// # Errors
    /// The driver fails, or [`CudaError::NoDevice`] if it shows no device.
    pub(crate) fn devices(&self) -> Result<Vec<DeviceFacts>, CudaError> {
        let mut count = 0;
        // SAFETY: it writes one integer.
        unsafe { self.table.cuDeviceGetCount(&raw mut count) }?;
        if count == 0 {
            return Err(CudaError::NoDevice);
        }
        (0..count).map(|ordinal| self.device(ordinal)).collect()
    }

    pub(super) fn handle(&self, ordinal: i32) -> Result<CUdevice, CudaError> {
        let mut device = 0;
        // SAFETY: it writes one handle.
        unsafe { self.table.cuDeviceGet(&raw mut device, ordinal) }?;
        Ok(device)
    }

    fn device(&self, ordinal: i32) -> Result<DeviceFacts, CudaError> {
        use CUdevice_attribute as Attribute;
        let device = self.handle(ordinal)?;
        let mut bytes = 0;
        // SAFETY: it writes one number.
        unsafe { self.table.cuDeviceTotalMem_v2(&raw mut bytes, device) }?;
        let major = self.attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors = self.attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let table = self.table;
        Ok(DeviceFacts {
            ordinal,
            // SAFETY: it writes at most `length` characters, the last of them 0.
            name: text(|start, length| unsafe { table.cuDeviceGetName(start, length, device) })?,
            uuid: self.uuid(device),
            compute_capability: (major, minor),
            memory_bytes: bytes as u64,
            multiprocessors: u32::try_from(multiprocessors).unwrap_or(0),
            // SAFETY: as above.
            pci_bus: text(|start, length| unsafe { table.cuDeviceGetPCIBusId(start, length, device) }).ok(),
        })
    }

    pub(super) fn attribute(&self, device: CUdevice, attribute: CUdevice_attribute) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: it writes one integer.
        unsafe { self.table.cuDeviceGetAttribute(&raw mut value, attribute as c_int, device) }?;
        Ok(value)
    }

    /// Returns the identity. The second version of the call reports a MIG instance's identity instead of its parent's (CUDA
    /// 11.4). Neither version marks instances: the prefix always belongs to a whole GPU, so the caller must find out if it
    /// is an instance.
    fn uuid(&self, device: CUdevice) -> Option<String> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: it writes 16 bytes.
        let told = unsafe { self.table.cuDeviceGetUuid_v2(&raw mut uuid, device) }
            // SAFETY: as above.
            .or_else(|_| unsafe { self.table.cuDeviceGetUuid(&raw mut uuid, device) });
        told.ok()?;
        let hex: String = uuid.bytes.iter().map(|&byte| format!("{:02x}", byte.cast_unsigned())).collect();
        Some(format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
    }
}

/// Returns the string that a function writes into a place of limited length.
fn text(write: impl Fn(*mut c_char, c_int) -> Result<(), CudaError>) -> Result<String, CudaError> {
    const LONGEST: u8 = 128;
    let mut place: [c_char; LONGEST as usize] = [0; LONGEST as usize];
    write(place.as_mut_ptr(), c_int::from(LONGEST))?;
    let bytes: Vec<u8> = place.iter().map(|&c| c.cast_unsigned()).take_while(|&byte| byte != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
