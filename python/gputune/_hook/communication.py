"""Times the communication between ranks: collectives, and the waits in DistributedDataParallel's backward."""

from __future__ import annotations

import weakref
from typing import Any, Optional

from torch import distributed, nn

from gputune._hook.devices import module_of
from gputune._hook.patching import Function, is_compiling, replace
from gputune._hook.steps import COMMUNICATION
from gputune._hook.timeline import Phases

_COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
)
#: On a CPU the hook makes DistributedDataParallel time every fifth step, instead of the first ten and every hundredth.
#: It does not do so on a device, as timing waits for the events of the last step
#: (torch/csrc/distributed/c10d/logger.cpp).
_SAMPLED = 5


class Communication:
    """Records the phase `communication`. Does nothing without `torch.distributed`."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self._parallel: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self) -> None:
        if not distributed.is_available():
            return
        for name in _COLLECTIVES:
            if hasattr(distributed, name):
                replace(distributed, name, self._around_collective)
        replace(nn.parallel.DistributedDataParallel, "__init__", self._around_parallel)

    def _around_collective(self, original: Function) -> Function:
        phases = self._phases

        def collective(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or kwargs.get("async_op") or phases.is_inside(COMMUNICATION):
                return original(*args, **kwargs)
            phases.enter(COMMUNICATION)
            try:
                return original(*args, **kwargs)
            finally:
                phases.leave()

        return collective

    def _around_parallel(self, original: Function) -> Function:
        def __init__(parallel: Any, *args: Any, **kwargs: Any) -> None:
            original(parallel, *args, **kwargs)
            self._parallel.add(parallel)
            sample = getattr(parallel, "_set_ddp_runtime_logging_sample_rate", None)
            if sample is not None and all(module_of(tensor.device) is None for tensor in parallel.parameters()):
                sample(_SAMPLED)

        return __init__

    def in_backward(self) -> Optional[float]:
        """Seconds per step in which backward only waits for the gradients of other ranks; `None` if not sampled."""
        seconds = None
        for parallel in self._parallel:
            try:
                times = parallel._get_ddp_logging_data()
                waited = times["avg_backward_comm_time"] - times["avg_backward_compute_comm_overlap_time"]
            except Exception:  # an older torch, or nothing was sampled yet
                continue
            if waited > 0:
                seconds = (seconds or 0.0) + waited / 1e9
        return seconds
