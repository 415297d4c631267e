//! A table of texts by which frameworks and runtimes report failures, and the numbers in PyTorch's message.
//!
//! `docs/design/failure-texts.md` lists every text, and a test compares the two lists.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use crate::model::Memory;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    OutOfMemory(Memory),
    /// cuDNN found no algorithm for an operation. The reason is a lack of memory if an allocation failed.
    NoEngine,
    /// The GPU or a library on it is in a state from which the process cannot recover. The line gives the reason.
    DeviceFault,
    /// A data worker is gone. The reason depends on the signal and on the kernel's reports.
    WorkerLost,
}

/// One text, in lower case.
struct Signature {
    text: &'static str,
    /// True if the text counts only at the start of a line.
    at_start: bool,
    means: Meaning,
}

const DEVICE: Meaning = Meaning::OutOfMemory(Memory::Device);
const HOST: Meaning = Meaning::OutOfMemory(Memory::Host);
const SHARED: Meaning = Meaning::OutOfMemory(Memory::Shared);

const fn known(means: Meaning, text: &'static str) -> Signature {
    Signature { text, at_start: false, means }
}

/// All signatures. A bare "out of memory" is not a signature, because scripts also print it in warnings.
const SIGNATURES: &[Signature] = &[
    // PyTorch's allocators, present and past (c10/cuda/CUDACachingAllocator.cpp and its siblings).
    known(DEVICE, "cuda out of memory"),
    known(DEVICE, "torch.outofmemoryerror"),
    known(DEVICE, "torch.cuda.outofmemoryerror"),
    known(DEVICE, "cuda error: out of memory"),
    known(DEVICE, "cuda driver error: out of memory"),
    known(DEVICE, "cuda runtime error (2) : out of memory"),
    known(DEVICE, "hip out of memory"),
    known(DEVICE, "xpu out of memory"),
    known(DEVICE, "mps backend out of memory"),
    known(DEVICE, "allocation was preemptively rejected because it would exceed"),
    known(DEVICE, "memory mapping failed with oom"),
    // The allocator asks NVML for the numbers in its message. NVML refuses in a MIG instance and in some containers, so this
    // assertion takes the place of the message (pytorch#112377).
    known(DEVICE, "nvml_success == r internal assert failed"),
    // The CUDA driver and runtime, as other programs quote them.
    known(DEVICE, "cuda_error_out_of_memory"),
    known(DEVICE, "cudaerrormemoryallocation"),
    known(DEVICE, "cudamalloc retry failed: out of memory"),
    known(DEVICE, "cupy.cuda.memory.outofmemoryerror"),
    // Libraries on the device. cuDNN's CUDNN_STATUS_NOT_SUPPORTED is not listed. Shapes, strides and types that no algorithm
    // supports cause the same message, however much memory is free.
    known(DEVICE, "cublas_status_alloc_failed"),
    // cuBLAS reports this error if there is no memory for a new handle (EleutherAI/lm-evaluation-harness #1689).
    known(DEVICE, "cublas_status_not_initialized when calling `cublascreate"),
    known(DEVICE, "cusparse_status_alloc_failed"),
    known(DEVICE, "cusolver_status_alloc_failed"),
    known(DEVICE, "cufft_alloc_failed"),
    known(DEVICE, "cudnn_status_alloc_failed"),
    known(DEVICE, "cudnn_status_internal_error_device_allocation_failed"),
    // No algorithm supports the operation, or none had enough memory for its workspace (pytorch#108645).
    known(Meaning::NoEngine, "unable to find an engine to execute this computation"),
    // XLA, in JAX and TensorFlow.
    known(DEVICE, "resource_exhausted: out of memory"),
    known(DEVICE, "resource_exhausted: failed to allocate request"),
    known(DEVICE, "ran out of memory in memory space"),
    // TensorFlow.
    known(DEVICE, "oom when allocating tensor with shape"),
    known(DEVICE, "resourceexhaustederror"),
    known(DEVICE, "dst tensor is not initialized"),
    // bitsandbytes (csrc/compat.cuh), which then exits without a Python exception.
    known(DEVICE, "error out of memory at line"),
    // NCCL (src/include/checks.h and alloc.h), without and with the error number, which newer versions print.
    known(DEVICE, "cuda failure 'out of memory'"),
    known(DEVICE, "cuda failure 2 'out of memory'"),
    known(DEVICE, "failed to cuda calloc"),
    known(DEVICE, "failed to cuda malloc"),
    known(HOST, "failed to cuda host alloc"),
    // PyTorch on the CPU.
    known(HOST, "defaultcpuallocator: can't allocate memory"),
    known(HOST, "defaultcpuallocator: not enough memory"),
    // Slurm, Ray, errno 12, libstdc++, CPython's `MemoryError` behind torchrun's prefix `[rank0]: `, NumPy.
    known(HOST, "oom_kill event"),
    known(HOST, "oom-kill event"),
    known(HOST, "ray.exceptions.outofmemoryerror"),
    known(HOST, "[errno 12] cannot allocate memory"),
    known(HOST, "std::bad_alloc"),
    known(HOST, "]: memoryerror"),
    known(HOST, "numpy._core._exceptions._arraymemoryerror"),
    known(HOST, "numpy.core._exceptions._arraymemoryerror"),
    // CPython and Rust.
    Signature { at_start: true, ..known(HOST, "memoryerror") },
    Signature { at_start: true, ..known(HOST, "memory allocation of ") },
    // PyTorch's data loader and shared tensors, NCCL, Python's multiprocessing.
    known(SHARED, "insufficient shared memory (shm)"),
    known(SHARED, "is killed by signal: bus error"),
    known(SHARED, "unable to write to file </torch_"),
    known(SHARED, "unable to allocate shared memory(shm)"),
    known(SHARED, "error while creating shared memory segment"),
    known(SHARED, "[errno 28] no space left on device: '/psm_"),
    // CUDA errors after which every further call fails (CUDA runtime API, `cudaGetErrorString`; "sticky" errors).
    known(Meaning::DeviceFault, "an illegal memory access was encountered"),
    known(Meaning::DeviceFault, "device-side assert triggered"),
    known(Meaning::DeviceFault, "unspecified launch failure"),
    known(Meaning::DeviceFault, "uncorrectable ecc error encountered"),
    known(Meaning::DeviceFault, "misaligned address"),
    known(Meaning::DeviceFault, "an illegal instruction was encountered"),
    known(Meaning::DeviceFault, "the launch timed out and was terminated"),
    known(Meaning::DeviceFault, "cuda_error_illegal_address"),
    known(Meaning::DeviceFault, "cuda_error_launch_failed"),
    known(Meaning::DeviceFault, "cuda_error_assert"),
    known(Meaning::DeviceFault, "cuda_error_ecc_uncorrectable"),
    // CUDA and the driver do not match, or no device exists.
    known(Meaning::DeviceFault, "no cuda-capable device is detected"),
    known(Meaning::DeviceFault, "no kernel image is available for execution on the device"),
    known(Meaning::DeviceFault, "cuda driver version is insufficient for cuda runtime version"),
    // PyTorch's watchdog for collectives.
    known(Meaning::DeviceFault, "watchdog caught collective operation timeout"),
    // PyTorch's data loader: `... is killed by signal: Killed`, `... exited unexpectedly`.
    known(Meaning::WorkerLost, "dataloader worker (pid"),
];

pub(super) fn meaning(line: &str) -> Option<Meaning> {
    let lower = line.to_lowercase();
    let found = |signature: &&Signature| {
        if signature.at_start { lower.starts_with(signature.text) } else { lower.contains(signature.text) }
    };
    SIGNATURES.iter().find(found).map(|signature| signature.means)
}

/// Returns a short version of PyTorch's message about a lack of device memory; `None` if it is a different message. The
/// probe's own processes do not count as other processes.
///
/// Today it is `CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.06
/// GiB is free. Process 4711 has 20.00 GiB memory in use. Including non-PyTorch memory, this process has 58.00 GiB
/// memory in use. ...`; before 2.2 it was `... Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.00 GiB
/// already allocated; 12.00 MiB free; 7.00 GiB reserved in total by PyTorch)` (c10/cuda/CUDACachingAllocator.cpp).
pub(super) fn shortage(line: &str, own: &BTreeSet<u32>) -> Option<String> {
    // The message up to the amount that could not be allocated.
    let head = TRIED.as_ref()?.find(line)?.as_str().trim();
    let group = |pattern: &LazyLock<Option<Regex>>| {
        let found = pattern.as_ref()?.captures(line)?;
        Some(found.iter().skip(1).flatten().next()?.as_str().to_owned())
    };
    let mut parts = Vec::new();
    if let (Some(free), Some(total)) = (group(&FREE), group(&TOTAL)) {
        parts.push(format!("{free} of {total} are free"));
    }
    for found in OTHERS.as_ref()?.captures_iter(line) {
        let Ok(pid) = found[1].parse::<u32>() else { continue };
        if !own.contains(&pid) {
            parts.push(format!("process {pid}, which is none of the probe's, holds {}", &found[2]));
        }
    }
    Some(if parts.is_empty() { head.to_owned() } else { format!("{head} ({})", parts.join("; ")) })
}

static TRIED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^.*?Tried to allocate [0-9.]+ (?:bytes|\S?i?B)").ok());
static TOTAL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"total capacity of ([0-9.]+ \S?i?B)|([0-9.]+ \S?i?B) total capacity").ok());
static FREE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"of which ([0-9.]+ (?:bytes|\S?i?B)) is free|([0-9.]+ (?:bytes|\S?i?B)) free").ok());
static OTHERS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"Process (\d+) has ([0-9.]+ (?:bytes|\S?i?B)) memory in use").ok());

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

    #[test]
    fn the_numbers_of_today_and_of_before_are_read() {
        let new = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
                   79.10 GiB of which 1.06 GiB is free. Process 4711 has 20.00 GiB memory in use. Process 12 has 1.00 GiB \
                   memory in use. Including non-PyTorch memory, this process has 58.00 GiB memory in use.";
        assert_eq!(
            shortage(new, &BTreeSet::from([12])).unwrap(),
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (1.06 GiB of 79.10 GiB are free; \
             process 4711, which is none of the probe's, holds 20.00 GiB)"
        );
        let old = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.00 GiB \
                   already allocated; 12.00 MiB free; 7.00 GiB reserved in total by PyTorch)";
        assert_eq!(
            shortage(old, &BTreeSet::new()).unwrap(),
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (12.00 MiB of 7.93 GiB are free)"
        );
        assert_eq!(shortage("CUDA error: out of memory", &BTreeSet::new()), None);
    }
}
