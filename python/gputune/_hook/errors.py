"""Reports the exception that ends the script."""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional

from gputune._client import end_now, rank_and_ranks
from gputune._hook.memory import Memory
from gputune._hook.session import Session
from gputune._hook.stopping import Stopping

#: Messages of torch and its libraries when memory runs out; the error types differ between versions.
_OUT_OF_MEMORY = (
    "out of memory",  # CUDA, HIP, XPU, MPS and NCCL
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",  # a handle takes memory
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED",  # the allocator gets no numbers for its message (pytorch#112377)
)

#: Messages that mean a lack of memory only if an allocation has failed: cuDNN found no algorithm, perhaps because its
#: workspace did not fit (pytorch#108645).
_IF_ALLOCATIONS_FAILED = ("unable to find an engine to execute this computation",)

#: Messages of attention if no kernel that `torch.sdpa` allows accepts its inputs. The last is from torch 2.11 on CUDA.
_NO_KERNEL = ("No available kernel", "No viable backend for scaled_dot_product_attention", "Invalid backend")

#: Errors of launchers that repeat the error of a rank. The rank has reported its error itself.
_REPEATED = ("ChildFailedError",)


def lacks_memory(error: BaseException, memory: Memory) -> bool:
    """True if an exception says that memory ran out."""
    text = f"{type(error).__name__}: {error}"
    if any(part in text for part in _IF_ALLOCATIONS_FAILED):
        return memory.report_failures()
    return isinstance(error, MemoryError) or any(part in text for part in _OUT_OF_MEMORY)


class Errors:
    """An exception hook that calls the previous hook last."""

    def __init__(self, session: Session, stopping: Stopping, memory: Memory) -> None:
        self._session = session
        self._stopping = stopping
        self._memory = memory
        self.explanations: list[Callable[[BaseException], Optional[str]]] = []
        """Functions that return an explanation of the script's error, or `None`."""

    def install(self) -> None:
        previous = sys.excepthook

        def excepthook(kind: Any, error: Any, trace: Any) -> None:
            for _ in range(2):  # torch's signal handler for a dead worker may interrupt the first attempt
                try:
                    if self._stopping.is_ordered and self._session.is_ours:
                        end_now()  # ranks fail if another rank has left earlier, which is no error of the script
                    self._report(kind, error)
                    break
                except Exception:  # the user must see the script's error, not the hook's
                    pass
            previous(kind, error, trace)

        sys.excepthook = excepthook

    def _report(self, kind: Any, error: Any) -> None:
        if not self._session.is_ours or not issubclass(kind, Exception) or kind.__name__ in _REPEATED:
            return
        rank, ranks = rank_and_ranks()
        text = f"{kind.__name__}: {error}"
        if "torch.sdpa" in self._session.settings and any(part in text for part in _NO_KERNEL):
            self._session.reject("torch.sdpa", str(error))
            return
        message = f"rank {rank}: {text}" if ranks > 1 else text
        explained = [words for words in (explain(error) for explain in self.explanations) if words is not None]
        message = ": ".join([*explained, message])
        is_out_of_memory = lacks_memory(error, self._memory)
        if is_out_of_memory:
            self._memory.snapshot.write()
        elif self._memory.lacks:
            is_out_of_memory, message = True, f"{message} (memory ran out before, and the script made no step)"
        self._session.send("error", kind="out_of_memory" if is_out_of_memory else "failed", message=message)
