//! The driver's functions (CUDA driver API reference).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream, CUuuid};

use super::CudaError;
use super::library::{functions, open};

/// The driver's library: it comes with the driver and never with a toolkit.
pub(super) const LIBRARY: &str = "libcuda.so.1";

functions! {
    /// The driver. It uses the first version of `cuEventElapsedTime`, because the second only came with driver 570.
    DriverTable of "libcuda.so.1" {
        fn cuInit(flags: c_uint);
        fn cuDriverGetVersion(version: *mut c_int);
        fn cuGetErrorName(code: c_int, name: *mut *const c_char);
        fn cuDeviceGetCount(count: *mut c_int);
        fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
        fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
        fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice);
        fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
        fn cuDeviceGetPCIBusId(name: *mut c_char, length: c_int, device: CUdevice);
        fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
        fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        fn cuCtxSetCurrent(context: CUcontext);
        fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
        fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
        fn cuMemFree_v2(address: CUdeviceptr);
        fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
        fn cuMemFreeHost(address: *mut c_void);
        fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
        fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
        fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
        fn cuMemcpyPeerAsync(
            to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream,
        );
        fn cuMemsetD8Async(to: CUdeviceptr, byte: u8, count: usize, stream: CUstream);
        fn cuStreamCreate(stream: *mut CUstream, flags: c_uint);
        fn cuStreamDestroy_v2(stream: CUstream);
        fn cuStreamSynchronize(stream: CUstream);
        fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        fn cuEventCreate(event: *mut CUevent, flags: c_uint);
        fn cuEventDestroy_v2(event: CUevent);
        fn cuEventRecord(event: CUevent, stream: CUstream);
        fn cuEventSynchronize(event: CUevent);
        fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
        fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
        fn cuModuleUnload(module: CUmodule);
        fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        fn cuFuncGetParamInfo(function: CUfunction, number: usize, offset: *mut usize, bytes: *mut usize);
        #[expect(clippy::too_many_arguments, reason = "the library's own signature")]
        fn cuLaunchKernel(
            function: CUfunction,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: CUstream,
            arguments: *mut *mut c_void, extra: *mut *mut c_void,
        );
    }
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: c_int = 2;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: c_int = 100;

impl DriverTable {
    /// Loads the library without touching any device.
    pub(super) fn load() -> Result<Self, CudaError> {
        let library = open(Path::new(LIBRARY)).map_err(|reason| {
            let absent = reason.contains("No such file");
            if absent {
                CudaError::NotFound { library: LIBRARY }
            } else {
                CudaError::Broken { library: LIBRARY, reason }
            }
        })?;
        Ok(Self::of(library))
    }

    fn failure(&self, call: &'static str, code: c_int) -> CudaError {
        match code {
            NO_DEVICE => CudaError::NoDevice,
            OUT_OF_MEMORY if call == "cuMemHostAlloc" => CudaError::OutOfHostMemory { bytes: 0 },
            OUT_OF_MEMORY => CudaError::OutOfMemory { bytes: 0 },
            _ => CudaError::Failed { call, code, name: self.name_of(call, code) },
        }
    }

    fn name_of(&self, call: &str, code: c_int) -> String {
        let mut name = ptr::null();
        // A failure to name a code has no name itself.
        let asked = call != "cuGetErrorName"
            // SAFETY: the driver writes the address of a constant text, or leaves a null pointer.
            && unsafe { self.cuGetErrorName(code, &raw mut name) }.is_ok();
        if !asked || name.is_null() {
            return "unknown code".to_owned();
        }
        // SAFETY: the driver's names are constants that end with 0.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The installed driver may lack one of the two identity functions, and the functions of CUDA 12.4.
    #[test]
    #[expect(clippy::print_stderr, reason = "says that it was skipped")]
    fn the_driver_has_every_function() {
        match DriverTable::load() {
            Ok(table) => {
                let may_lack = |name: &&str| name.starts_with("cuDeviceGetUuid") || *name == "cuFuncGetParamInfo";
                assert!(table.missing().iter().all(may_lack), "{:?}", table.missing());
            }
            Err(error) => eprintln!("skipped: {error}"),
        }
    }
}
