//! What the tests load as a `libcuda.so.1` that has next to nothing: a driver that is far too old.
#![expect(unsafe_code, reason = "it has the C interface of the driver")]
#![expect(missing_docs, reason = "as the driver's documentation has it")]

use std::ffi::{c_int, c_uint};

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_int {
    0
}
