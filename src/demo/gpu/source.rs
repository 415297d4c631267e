//! The source code of the kernels for one storage type.

use super::super::scalar::Storage;

/// `kernels.cu`.
pub(super) const KERNEL_SOURCE: &str = include_str!("kernels.cu");

/// The device's names for the functions that the kernels use, in CUDA C++ without any header.
const DEVICE: &str = "
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define KERNEL extern \"C\" __global__ void
#define THREAD ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define INLINE static __device__ __forceinline__
INLINE u32 bits_of(float value) { return __float_as_uint(value); }
INLINE float with_bits(u32 bits) { return __uint_as_float(bits); }
INLINE float half_to_float(u16 half) { float value; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(value) : \"h\"(half)); return value; }
INLINE u16 float_to_half(float value) { u16 half; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(half) : \"f\"(value)); return half; }
";

const F32: &str = "
#define STORED float
#define LOAD(stored) (stored)
#define STORE(value) (value)
";

// The rounding of `Scalar for bf16`.
const BF16: &str = "
#define STORED u16
INLINE float load(u16 stored) { return with_bits((u32)stored << 16); }
INLINE u16 store(float value)
{
    u32 bits = bits_of(value);
    return value != value ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
#define LOAD(stored) load(stored)
#define STORE(value) store(value)
";

const F16: &str = "
#define STORED u16
#define LOAD(stored) half_to_float(stored)
#define STORE(value) float_to_half(value)
";

/// Returns the kernels for this storage, ready to be compiled for a GPU.
pub(super) fn device_source(storage: Storage) -> String {
    [DEVICE, storage_source(storage), KERNEL_SOURCE].concat()
}

/// Returns the code by which the kernels load and store numbers.
pub(super) fn storage_source(storage: Storage) -> &'static str {
    match storage {
        Storage::F32 => F32,
        Storage::Bf16 => BF16,
        Storage::F16 => F16,
    }
}
