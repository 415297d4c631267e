//! The errors of CUDA, each in one line, with remedies.

use thiserror::Error;

/// A call into CUDA that failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The library is in none of the searched places.
    #[error("{library} was not found")]
    NotFound {
        /// Such as `libcuda.so.1`.
        library: &'static str,
    },
    /// A file of that name exists, but it cannot be loaded.
    #[error("{library} cannot be loaded: {reason}")]
    Broken {
        /// Such as `libcuda.so.1`.
        library: &'static str,
        /// The loader's message.
        reason: String,
    },
    /// The library is too old, or a different library.
    #[error("{library} has no {symbol}")]
    NoSymbol {
        /// Such as `libcuda.so.1`.
        library: &'static str,
        /// The missing function.
        symbol: &'static str,
    },
    /// The driver works but shows no device.
    #[error("the driver shows no GPU")]
    NoDevice,
    /// The device does not have enough memory left.
    #[error("out of memory{}", asked(*.bytes))]
    OutOfMemory {
        /// The requested size; 0 if unknown.
        bytes: u64,
    },
    /// The host does not have enough pinned memory left, which the device can access directly.
    #[error("out of pinned host memory{}", asked(*.bytes))]
    OutOfHostMemory {
        /// The requested size; 0 if unknown.
        bytes: u64,
    },
    /// A call failed.
    #[error("{call} failed: {name} ({code})")]
    Failed {
        /// The function.
        call: &'static str,
        /// The code that it returned.
        code: i32,
        /// The code's name, or `unknown code`.
        name: String,
    },
    /// The compiler rejected a kernel.
    #[error("the kernel does not compile: {log}")]
    NotCompiled {
        /// The compiler's messages.
        log: String,
    },
    /// The device or the library does not support this.
    #[error("not supported: {0}")]
    NotSupported(String),
    /// The lengths of the arguments do not fit together.
    #[error("{0}")]
    BadSize(String),
}

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
        match self {
            Self::NotFound { library: "libcuda.so.1" } => {
                Some("install the NVIDIA driver; a container needs `--gpus all` and the NVIDIA container toolkit")
            }
            Self::NotFound { .. } => Some("install PyTorch for CUDA or the CUDA toolkit, or set CUDA_HOME"),
            Self::Broken { .. } => Some("install it anew; its kind must be that of this machine"),
            Self::NoSymbol { library: "libcuda.so.1", .. } => Some("update the NVIDIA driver"),
            Self::NoSymbol { .. } => Some("install a later version of it"),
            Self::NoDevice => Self::cure_of(100),
            // `CUBLAS_STATUS_NOT_INITIALIZED`.
            Self::Failed { call: "cublasLtCreate", code: 1, .. } => {
                Some("its CUDA may be later than the driver's: update the driver, or install PyTorch for its CUDA")
            }
            Self::Failed { call, code, .. } if call.starts_with("cu") && !call.starts_with("cublas") => {
                Self::cure_of(*code)
            }
            _ => None,
        }
    }

    fn cure_of(code: i32) -> Option<&'static str> {
        CURES.iter().find(|(known, _)| *known == code).map(|(_, cure)| *cure)
    }

    /// Returns true if memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::OutOfHostMemory { .. })
    }

    /// Adds the requested size, if memory ran out.
    pub(super) fn asking(self, bytes: usize) -> Self {
        let bytes = bytes as u64;
        match self {
            Self::OutOfMemory { .. } => Self::OutOfMemory { bytes },
            Self::OutOfHostMemory { .. } => Self::OutOfHostMemory { bytes },
            other => other,
        }
    }
}

fn asked(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(": {bytes} bytes were asked for") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_line_and_have_a_cure() {
        let failed = |code| CudaError::Failed { call: "cuInit", code, name: "X".to_owned() };
        for &(code, cure) in CURES {
            assert_eq!(failed(code).cure(), Some(cure));
            assert!(!cure.contains('\n') && !cure.ends_with('.'), "{cure}");
        }
        assert_eq!(failed(12345).cure(), None);
        assert_eq!(failed(12345).to_string(), "cuInit failed: X (12345)");
        assert!(CudaError::NotFound { library: "libcuda.so.1" }.cure().unwrap().contains("driver"));
        assert!(CudaError::NotFound { library: "libnvrtc" }.cure().unwrap().contains("CUDA_HOME"));
        assert!(CudaError::NoDevice.cure().is_some());
    }

    #[test]
    fn whose_memory_ran_out_and_how_much_was_asked_for_is_told() {
        let device = CudaError::OutOfMemory { bytes: 0 };
        assert_eq!(device.to_string(), "out of memory");
        assert_eq!(device.asking(7).to_string(), "out of memory: 7 bytes were asked for");
        let host = CudaError::OutOfHostMemory { bytes: 0 }.asking(7);
        assert_eq!(host.to_string(), "out of pinned host memory: 7 bytes were asked for");
        assert!(host.is_out_of_memory());
        assert_eq!(CudaError::NoDevice.asking(7), CudaError::NoDevice);
    }
}
