//! cuBLASLt's functions (cuBLAS library documentation, "Using the cuBLASLt API").

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use cudarc::cublaslt::sys::{
    cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulPreference_t, cublasLtMatrixLayout_t,
};
use cudarc::driver::sys::CUstream;

use super::CudaError;
use super::library::{Wanted, functions, load};

const LIBRARY: Wanted = Wanted { name: "libcublasLt", file: "libcublasLt.so" };

/// A proposal of cuBLASLt for a product. The library's own struct has an enum that cannot hold the codes of later versions.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Proposal {
    pub(super) algorithm: cublasLtMatmulAlgo_t,
    pub(super) workspace_bytes: usize,
    pub(super) state: c_int,
    pub(super) waves: f32,
    pub(super) reserved: [c_int; 4],
}

functions! {
    BlasTable of "libcublasLt" {
        fn cublasLtCreate(handle: *mut cublasLtHandle_t);
        fn cublasLtDestroy(handle: cublasLtHandle_t);
        fn cublasLtMatrixLayoutCreate(
            layout: *mut cublasLtMatrixLayout_t, element: c_int, rows: u64, columns: u64, leading: i64,
        );
        fn cublasLtMatrixLayoutDestroy(layout: cublasLtMatrixLayout_t);
        fn cublasLtMatmulDescCreate(description: *mut cublasLtMatmulDesc_t, compute: c_int, scale: c_int);
        fn cublasLtMatmulDescSetAttribute(
            description: cublasLtMatmulDesc_t, attribute: c_int, value: *const c_void, bytes: usize,
        );
        fn cublasLtMatmulDescDestroy(description: cublasLtMatmulDesc_t);
        fn cublasLtMatmulPreferenceCreate(preference: *mut cublasLtMatmulPreference_t);
        fn cublasLtMatmulPreferenceSetAttribute(
            preference: cublasLtMatmulPreference_t, attribute: c_int, value: *const c_void, bytes: usize,
        );
        fn cublasLtMatmulPreferenceDestroy(preference: cublasLtMatmulPreference_t);
        #[expect(clippy::too_many_arguments, reason = "the library's own signature")]
        fn cublasLtMatmulAlgoGetHeuristic(
            handle: cublasLtHandle_t, description: cublasLtMatmulDesc_t,
            a: cublasLtMatrixLayout_t, b: cublasLtMatrixLayout_t, c: cublasLtMatrixLayout_t, d: cublasLtMatrixLayout_t,
            preference: cublasLtMatmulPreference_t, wanted: c_int, proposals: *mut Proposal, found: *mut c_int,
        );
        #[expect(clippy::too_many_arguments, reason = "the library's own signature")]
        fn cublasLtMatmul(
            handle: cublasLtHandle_t, description: cublasLtMatmulDesc_t, alpha: *const c_void,
            a: *const c_void, a_layout: cublasLtMatrixLayout_t, b: *const c_void, b_layout: cublasLtMatrixLayout_t,
            beta: *const c_void, c: *const c_void, c_layout: cublasLtMatrixLayout_t,
            d: *mut c_void, d_layout: cublasLtMatrixLayout_t,
            algorithm: *const cublasLtMatmulAlgo_t, workspace: *mut c_void, workspace_bytes: usize, stream: CUstream,
        );
    }
}

/// Names of the codes (cuBLAS library documentation, `cublasStatus_t`).
const CODES: &[(c_int, &str)] = &[
    (1, "CUBLAS_STATUS_NOT_INITIALIZED"),
    (7, "CUBLAS_STATUS_INVALID_VALUE"),
    (8, "CUBLAS_STATUS_ARCH_MISMATCH"),
    (11, "CUBLAS_STATUS_MAPPING_ERROR"),
    (13, "CUBLAS_STATUS_EXECUTION_FAILED"),
    (14, "CUBLAS_STATUS_INTERNAL_ERROR"),
];
/// `CUBLAS_STATUS_ALLOC_FAILED`.
const ALLOC_FAILED: c_int = 3;
/// `CUBLAS_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 15;

impl BlasTable {
    /// Loads the library, once for the process.
    pub(super) fn open(driver_major: Option<i32>) -> Result<&'static Self, CudaError> {
        static TABLE: OnceLock<Result<BlasTable, CudaError>> = OnceLock::new();
        let table = TABLE.get_or_init(|| load(&LIBRARY, driver_major).map(Self::of));
        table.as_ref().map_err(Clone::clone)
    }

    #[expect(clippy::unused_self, reason = "as the table of functions calls it")]
    fn failure(&self, call: &'static str, code: c_int) -> CudaError {
        failure(call, code)
    }
}

fn failure(call: &'static str, code: c_int) -> CudaError {
    match code {
        NOT_SUPPORTED => CudaError::NotSupported("cuBLASLt has no kernel for this product on this device".to_owned()),
        ALLOC_FAILED => CudaError::OutOfMemory { bytes: 0 },
        _ => {
            let name = CODES.iter().find(|(known, _)| *known == code).map_or("unknown code", |(_, name)| name);
            CudaError::Failed { call, code, name: name.to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs the library, but no GPU. Without the library, the test says so and checks nothing.
    #[test]
    #[expect(clippy::print_stderr, reason = "says that it was skipped")]
    fn the_library_has_every_function_and_descriptions_need_no_gpu() {
        let table = match BlasTable::open(None) {
            Ok(table) => table,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert!(table.missing().is_empty());
        let mut layout = std::ptr::null_mut();
        // SAFETY: it writes one handle, destroyed once.
        unsafe { table.cublasLtMatrixLayoutCreate(&raw mut layout, 0, 16, 16, 16) }.unwrap();
        // SAFETY: as above.
        unsafe { table.cublasLtMatrixLayoutDestroy(layout) }.unwrap();
    }

    #[test]
    fn a_library_without_memory_is_out_of_memory() {
        assert!(failure("cublasLtCreate", 3).is_out_of_memory());
        assert!(!failure("cublasLtCreate", 1).is_out_of_memory());
        assert_eq!(
            failure("cublasLtMatmul", 13).to_string(),
            "cublasLtMatmul failed: CUBLAS_STATUS_EXECUTION_FAILED (13)"
        );
    }
}
