//! A table of texts by which frameworks and runtimes report failures.
//!
//! `docs/design/failure-texts.md` lists every text, and a test compares the two lists.

use crate::model::Memory;

/// The meaning of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Memory ran out.
    OutOfMemory(Memory),
    /// cuDNN found no algorithm for an operation. The reason is a lack of memory if an allocation failed.
    NoEngine,
    /// The GPU or a library on it is in a state from which the process cannot recover. The line gives the reason.
    DeviceFault,
    /// A data worker is gone. The reason depends on the signal and on the kernel's reports.
    WorkerLost,
}

/// One text, in lower case.
pub(super) struct Signature {
    pub(super) text: &'static str,
    /// True if the text counts only at the start of a line.
    pub(super) at_start: bool,
    pub(super) means: Meaning,
}

const fn device(text: &'static str) -> Signature {
    Signature { text, at_start: false, means: Meaning::OutOfMemory(Memory::Device) }
}

const fn host(text: &'static str) -> Signature {
    Signature { text, at_start: false, means: Meaning::OutOfMemory(Memory::Host) }
}

const fn host_at_start(text: &'static str) -> Signature {
    Signature { text, at_start: true, means: Meaning::OutOfMemory(Memory::Host) }
}

const fn shared(text: &'static str) -> Signature {
    Signature { text, at_start: false, means: Meaning::OutOfMemory(Memory::Shared) }
}

const fn fault(text: &'static str) -> Signature {
    Signature { text, at_start: false, means: Meaning::DeviceFault }
}

const fn worker(text: &'static str) -> Signature {
    Signature { text, at_start: false, means: Meaning::WorkerLost }
}

const fn engine(text: &'static str) -> Signature {
    Signature { text, at_start: false, means: Meaning::NoEngine }
}

/// All signatures. A bare "out of memory" is not a signature, because scripts also print it in warnings.
pub(super) const SIGNATURES: &[Signature] = &[
    // PyTorch's allocators, present and past (c10/cuda/CUDACachingAllocator.cpp and its siblings).
    device("cuda out of memory"),
    device("torch.outofmemoryerror"),
    device("torch.cuda.outofmemoryerror"),
    device("cuda error: out of memory"),
    device("cuda driver error: out of memory"),
    device("cuda runtime error (2) : out of memory"),
    device("hip out of memory"),
    device("xpu out of memory"),
    device("mps backend out of memory"),
    device("allocation was preemptively rejected because it would exceed"),
    device("memory mapping failed with oom"),
    // The allocator asks NVML for the numbers in its message. NVML refuses in a MIG instance and in some containers, so this
    // assertion takes the place of the message (pytorch#112377).
    device("nvml_success == r internal assert failed"),
    // The CUDA driver and runtime, as other programs quote them.
    device("cuda_error_out_of_memory"),
    device("cudaerrormemoryallocation"),
    device("cudamalloc retry failed: out of memory"),
    device("cupy.cuda.memory.outofmemoryerror"),
    // Libraries on the device. cuDNN's CUDNN_STATUS_NOT_SUPPORTED is not listed. Shapes, strides and types that no algorithm
    // supports cause the same message, however much memory is free.
    device("cublas_status_alloc_failed"),
    // A handle takes memory, and this is the error if memory is missing (EleutherAI/lm-evaluation-harness #1689).
    device("cublas_status_not_initialized when calling `cublascreate"),
    device("cusparse_status_alloc_failed"),
    device("cusolver_status_alloc_failed"),
    device("cufft_alloc_failed"),
    device("cudnn_status_alloc_failed"),
    device("cudnn_status_internal_error_device_allocation_failed"),
    // No algorithm supports the operation, or none had enough memory for its workspace (pytorch#108645).
    engine("unable to find an engine to execute this computation"),
    // XLA, in JAX and TensorFlow.
    device("resource_exhausted: out of memory"),
    device("resource_exhausted: failed to allocate request"),
    device("ran out of memory in memory space"),
    // TensorFlow.
    device("oom when allocating tensor with shape"),
    device("resourceexhaustederror"),
    device("dst tensor is not initialized"),
    // bitsandbytes (csrc/compat.cuh), which then exits without a Python exception.
    device("error out of memory at line"),
    // NCCL (src/include/checks.h and alloc.h), without and with the error number, which newer versions print.
    device("cuda failure 'out of memory'"),
    device("cuda failure 2 'out of memory'"),
    device("failed to cuda calloc"),
    device("failed to cuda malloc"),
    host("failed to cuda host alloc"),
    // PyTorch on the CPU.
    host("defaultcpuallocator: can't allocate memory"),
    host("defaultcpuallocator: not enough memory"),
    // Slurm, Ray, errno 12, libstdc++, CPython below torchrun, NumPy.
    host("oom_kill event"),
    host("oom-kill event"),
    host("ray.exceptions.outofmemoryerror"),
    host("[errno 12] cannot allocate memory"),
    host("std::bad_alloc"),
    host("]: memoryerror"),
    host("numpy._core._exceptions._arraymemoryerror"),
    host("numpy.core._exceptions._arraymemoryerror"),
    // CPython and Rust.
    host_at_start("memoryerror"),
    host_at_start("memory allocation of "),
    // PyTorch's data loader and shared tensors, NCCL, Python's multiprocessing.
    shared("insufficient shared memory (shm)"),
    shared("is killed by signal: bus error"),
    shared("unable to write to file </torch_"),
    shared("unable to allocate shared memory(shm)"),
    shared("error while creating shared memory segment"),
    shared("[errno 28] no space left on device: '/psm_"),
    // CUDA errors after which every further call fails (CUDA runtime API, `cudaGetErrorString`; "sticky" errors).
    fault("an illegal memory access was encountered"),
    fault("device-side assert triggered"),
    fault("unspecified launch failure"),
    fault("uncorrectable ecc error encountered"),
    fault("misaligned address"),
    fault("an illegal instruction was encountered"),
    fault("the launch timed out and was terminated"),
    fault("cuda_error_illegal_address"),
    fault("cuda_error_launch_failed"),
    fault("cuda_error_assert"),
    fault("cuda_error_ecc_uncorrectable"),
    // CUDA and the driver do not match, or no device exists.
    fault("no cuda-capable device is detected"),
    fault("no kernel image is available for execution on the device"),
    fault("cuda driver version is insufficient for cuda runtime version"),
    // PyTorch's watchdog for collectives.
    fault("watchdog caught collective operation timeout"),
    // PyTorch's data loader: `... is killed by signal: Killed`, `... exited unexpectedly`.
    worker("dataloader worker (pid"),
];

/// Returns the meaning of a line, if it contains a known text.
pub(super) fn meaning(line: &str) -> Option<Meaning> {
    let lower = line.to_lowercase();
    let found = |signature: &&Signature| {
        if signature.at_start { lower.starts_with(signature.text) } else { lower.contains(signature.text) }
    };
    SIGNATURES.iter().find(found).map(|signature| signature.means)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_in_lower_case_and_none_hides_another() {
        for (place, signature) in SIGNATURES.iter().enumerate() {
            assert_eq!(signature.text, signature.text.to_lowercase());
            let hidden = SIGNATURES[..place].iter().find(|before| {
                !before.at_start && signature.text.contains(before.text) && before.means != signature.means
            });
            assert!(hidden.is_none(), "`{}` hides `{}`", hidden.map_or("", |before| before.text), signature.text);
        }
    }

    #[test]
    fn the_docs_list_every_text() {
        let docs = include_str!("../../../docs/design/failure-texts.md").to_lowercase();
        for Signature { text, .. } in SIGNATURES {
            assert!(docs.contains(&format!("- `{text}`")), "docs/design/failure-texts.md does not list `{text}`");
        }
    }
}
