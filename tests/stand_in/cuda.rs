//! The library that tests load as `libcuda.so.1`: it has the devices of the environment, and uses host memory.
//!
//! `STAND_IN_CUDA` lists devices by compute capability, such as `7.0` or `8.0,9.0`; without it the library has no device.
//! `STAND_IN_CUDA_INIT` is the code that `cuInit` returns, `STAND_IN_CUDA_VERSION` the version that the driver supports. Kernels
//! do nothing, and its numbers say nothing about a GPU.
#![expect(unsafe_code, reason = "it has the C interface of the driver")]
#![expect(clippy::missing_safety_doc, reason = "as the driver's documentation has it")]
#![expect(missing_docs, reason = "as the driver's documentation has it")]

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
/// The largest allocation, in bytes.
const LARGEST: usize = 100 << 20;
const HEADER: usize = 4096;

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn devices() -> Vec<(c_int, c_int)> {
    let list = std::env::var("STAND_IN_CUDA").unwrap_or_default();
    let device = |text: &str| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    list.split(',').filter_map(device).collect()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_int {
    variable("STAND_IN_CUDA_INIT").unwrap_or(if devices().is_empty() { NO_DEVICE } else { 0 })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller gives a place.
    unsafe { *version = variable("STAND_IN_CUDA_VERSION").unwrap_or(13_000) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    let text = match code {
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        803 => c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        999 => c"CUDA_ERROR_UNKNOWN",
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller gives a place.
    unsafe { *name = text.as_ptr() };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: the caller gives a place.
    unsafe { *count = c_int::try_from(devices().len()).unwrap_or(0) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    // SAFETY: the caller gives a place.
    unsafe { *device = ordinal };
    0
}

/// Writes a string and its final 0.
unsafe fn tell(text: &str, place: *mut c_char, length: c_int) -> c_int {
    let length = usize::try_from(length).unwrap_or(0);
    for (at, byte) in text.bytes().chain([0]).enumerate().take(length) {
        // SAFETY: within the place.
        unsafe { *place.add(at) = byte.cast_signed() };
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, _device: c_int) -> c_int {
    // SAFETY: the caller's place.
    unsafe { tell("Stand-in GPU", name, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> c_int {
    let mut bytes = [7; 16];
    bytes[15] = u8::try_from(device).unwrap_or(0);
    // SAFETY: the caller gives a place.
    unsafe { *uuid = bytes };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> c_int {
    // SAFETY: the caller gives a place.
    unsafe { *bytes = 1 << 30 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    let known = usize::try_from(device).ok().and_then(|device| devices().get(device).copied());
    let Some((major, minor)) = known else { return 101 };
    // Numbers of `CUdevice_attribute`.
    let told = match attribute {
        16 => 4,
        75 => major,
        76 => minor,
        // `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
        115 => 0,
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller gives a place.
    unsafe { *value = told };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, _device: c_int, _peer: c_int) -> c_int {
    // SAFETY: the caller gives a place.
    unsafe { *can = 0 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) -> c_int {
    // SAFETY: the caller gives a place; the handle is never dereferenced.
    unsafe { *context = ptr::dangling_mut::<u64>().cast() };
    0
}

/// No context is current on any thread, so cudarc always sets its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_int {
    // SAFETY: the caller gives a place.
    unsafe { *context = ptr::null_mut() };
    0
}

macro_rules! succeed {
    ($($name:ident($($kind:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($(_: $kind),*) -> c_int {
                0
            }
        )*
    };
}

succeed! {
    cuDevicePrimaryCtxRelease_v2(c_int);
    cuCtxSetCurrent(*mut c_void);
    cuStreamSynchronize(*mut c_void);
    cuStreamWaitEvent(*mut c_void, *mut c_void, c_uint);
    cuEventDestroy_v2(*mut c_void);
    cuEventRecord(*mut c_void, *mut c_void);
    cuEventSynchronize(*mut c_void);
    cuModuleUnload(*mut c_void);
    cuLaunchKernel(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void, *mut *mut c_void
    );
}

/// Allocates memory with its length in front.
unsafe fn take(bytes: usize) -> *mut u8 {
    let Ok(layout) = Layout::from_size_align(bytes + HEADER, HEADER) else { return ptr::null_mut() };
    if bytes > LARGEST {
        return ptr::null_mut();
    }
    // SAFETY: the length is not 0.
    let start = unsafe { alloc(layout) };
    if start.is_null() {
        return start;
    }
    // SAFETY: there is room for the length, and the memory behind it begins within the block.
    unsafe {
        start.cast::<usize>().write(bytes);
        start.add(HEADER)
    }
}

unsafe fn give_back(memory: *mut u8) {
    // SAFETY: `take` gave it, with its length in front.
    unsafe {
        let start = memory.sub(HEADER);
        let bytes = start.cast::<usize>().read();
        dealloc(start, Layout::from_size_align_unchecked(bytes + HEADER, HEADER));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    // SAFETY: any length does.
    let memory = unsafe { take(bytes) };
    // SAFETY: the caller gives a place.
    unsafe { *address = memory as u64 };
    if memory.is_null() { OUT_OF_MEMORY } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    // SAFETY: `cuMemAlloc_v2` gave it.
    unsafe { give_back(address as *mut u8) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) -> c_int {
    // SAFETY: any length does.
    let memory = unsafe { take(bytes) };
    // SAFETY: the caller gives a place.
    unsafe { *address = memory.cast() };
    if memory.is_null() { OUT_OF_MEMORY } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: *mut c_void) -> c_int {
    // SAFETY: `cuMemHostAlloc` gave it.
    unsafe { give_back(address.cast()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, _: *mut c_void) -> c_int {
    // SAFETY: the caller's lengths; "device" memory is this process's.
    unsafe { ptr::copy(from.cast::<u8>(), to as *mut u8, bytes) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, _: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { ptr::copy(from as *const u8, to.cast::<u8>(), bytes) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { ptr::copy(from as *const u8, to as *mut u8, bytes) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(to: u64, byte: u8, bytes: usize, _: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { ptr::write_bytes(to as *mut u8, byte, bytes) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> c_int {
    // SAFETY: the caller gives a place; the handle is never dereferenced.
    unsafe { *event = ptr::dangling_mut::<u64>().cast() };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut *mut c_void, _image: *const c_void) -> c_int {
    // SAFETY: the caller gives a place; the handle is never dereferenced.
    unsafe { *module = ptr::dangling_mut::<u64>().cast() };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut *mut c_void, _: *mut c_void, _: *const c_char) -> c_int {
    // SAFETY: the caller gives a place; the handle is never dereferenced.
    unsafe { *function = ptr::dangling_mut::<u64>().cast() };
    0
}
