//! The errors of CUDA, each in one line, with remedies.

use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::sys::cublasStatus_t;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use thiserror::Error;

/// A call into CUDA that failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The library is in none of the searched places, or it cannot be loaded.
    #[error("{0} was not found")]
    NotFound(&'static str),
    /// The driver lacks functions that gputune calls.
    #[error("the driver supports CUDA {0}.{1} at most")]
    TooOld(i32, i32),
    /// The driver works but lists no device.
    #[error("the driver shows no GPU")]
    NoDevice,
    /// The device or the host does not have enough memory left.
    #[error("out of memory")]
    OutOfMemory,
    /// A call into a library, such as `libcuda.so.1`, returned an error code of this name.
    #[error("{0} failed: {2} ({1})")]
    Failed(&'static str, i32, String),
    /// The device or the library does not support this.
    #[error("not supported: {0}")]
    NotSupported(String),
}

pub(super) const DRIVER: &str = "libcuda.so.1";
pub(super) const BLAS: &str = "libcublasLt";

/// Remedies for the codes that the driver returns on its first call (CUDA driver API reference, `CUresult`).
const CURES: &[(i32, &str)] = &[
    (34, "a stub of the CUDA toolkit was loaded instead of the driver: take its folder out of LD_LIBRARY_PATH"),
    (35, "the NVIDIA driver is older than its libraries: update it"),
    (46, "another process holds the GPU in exclusive mode: end it, or `nvidia-smi -c 0` as root"),
    (100, "no GPU is visible: look at CUDA_VISIBLE_DEVICES, and in a container start it with `--gpus all`"),
    (101, "CUDA_VISIBLE_DEVICES names a GPU that is not there"),
    (304, "/dev/nvidia* cannot be opened: check their permissions and the container's devices"),
    (800, "the operating system does not permit it: check the permissions of /dev/nvidia*"),
    (802, "the GPUs are not ready: on machines with NVSwitch, start nvidia-fabricmanager"),
    (803, "driver and kernel module differ in version: restart the machine, or the container with its own driver"),
    (804, "the forward-compatible libcuda does not support this GPU: take its folder out of LD_LIBRARY_PATH"),
    (999, "load the kernel module `nvidia-uvm`, with `nvidia-modprobe -u` as root, or restart the machine"),
];

impl CudaError {
    /// Returns the remedy, if known.
    pub fn cure(&self) -> Option<&'static str> {
        let of_code = |code| CURES.iter().find(|(known, _)| *known == code).map(|(_, cure)| *cure);
        match self {
            Self::NotFound(DRIVER) => {
                Some("install the NVIDIA driver; a container needs `--gpus all` and the NVIDIA container toolkit")
            }
            Self::NotFound { .. } => Some("install PyTorch for CUDA or the CUDA toolkit, or set CUDA_HOME"),
            Self::TooOld { .. } => Some("update the NVIDIA driver"),
            Self::NoDevice => of_code(100),
            Self::Failed(DRIVER, code, _) => of_code(*code),
            // `CUBLAS_STATUS_NOT_INITIALIZED`.
            Self::Failed(BLAS, 1, _) => {
                Some("its CUDA may be later than the driver's: update the driver, or install PyTorch for its CUDA")
            }
            _ => None,
        }
    }
}

impl From<DriverError> for CudaError {
    fn from(error: DriverError) -> Self {
        match error.0 {
            CUresult::CUDA_ERROR_NO_DEVICE => Self::NoDevice,
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Self::OutOfMemory,
            code => {
                let name = error.error_name();
                let name: String = name.map_or_else(|_| "unknown code".into(), |name| name.to_string_lossy().into());
                Self::Failed(DRIVER, code as i32, name)
            }
        }
    }
}

impl From<CublasError> for CudaError {
    fn from(error: CublasError) -> Self {
        match error.0 {
            cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => {
                Self::NotSupported("cuBLASLt has no kernel for this product on this device".to_owned())
            }
            cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => Self::OutOfMemory,
            code => Self::Failed(BLAS, code as i32, format!("{code:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_line_and_have_a_cure() {
        let failed = |library, code| CudaError::Failed(library, code, "X".to_owned());
        for &(code, cure) in CURES {
            assert_eq!(failed(DRIVER, code).cure(), Some(cure));
            assert!(!cure.contains('\n') && !cure.ends_with('.'), "{cure}");
        }
        assert_eq!(failed(DRIVER, 12345).cure(), None);
        assert_eq!(failed(DRIVER, 12345).to_string(), "libcuda.so.1 failed: X (12345)");
        assert!(failed(BLAS, 1).cure().unwrap().contains("later than the driver's"));
        assert!(CudaError::NotFound(DRIVER).cure().unwrap().contains("driver"));
        assert!(CudaError::NotFound(BLAS).cure().unwrap().contains("CUDA_HOME"));
        assert!(CudaError::NoDevice.cure().is_some());
    }

    #[test]
    fn codes_of_cublaslt_keep_their_meaning() {
        let of = |code| CudaError::from(CublasError(code));
        assert_eq!(of(cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED), CudaError::OutOfMemory);
        assert!(matches!(of(cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED), CudaError::NotSupported(_)));
        let failed = of(cublasStatus_t::CUBLAS_STATUS_EXECUTION_FAILED);
        assert_eq!(failed.to_string(), "libcublasLt failed: CUBLAS_STATUS_EXECUTION_FAILED (13)");
    }
}
