"""Times copies from the host to a CUDA device. Without one nothing is touched."""

from __future__ import annotations

from typing import Any

import torch

from gputune._hook.patching import Function, is_compiling, replace
from gputune._hook.timeline import Phases


class Transfers:
    """`Tensor.to` and `Tensor.cuda`, through which modules and containers of tensors go, too."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def install(self) -> None:
        if torch.cuda.is_available():
            for name in ("to", "cuda"):
                replace(torch.Tensor, name, self._around_copy)

    def _around_copy(self, original: Function) -> Function:
        phases = self._phases

        def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or tensor.is_cuda or phases.device is None or phases.is_inside("forward"):
                return original(tensor, *args, **kwargs)
            begin = phases.clock.mark()
            copied = original(tensor, *args, **kwargs)
            if getattr(copied, "is_cuda", False):
                phases.add("host_to_device", begin, phases.clock.mark())
            return copied

        return copy
