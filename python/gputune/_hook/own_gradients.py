"""Copies gradients out of the CUDA graphs of `torch.compile`, if gradients of several backward passes are added up.

The first backward pass of a step creates `.grad` in memory of the graph, which the next pass overwrites.
Torch then raises "accessing tensor output of CUDAGraphs that has been overwritten" (pytorch#169545) and advises buffers
outside of the graph.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import torch
from torch import nn
from torch.optim import Optimizer

from gputune._hook.compiling import COMPILE
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace
from gputune._hook.session import Session

#: The modes that use CUDA graphs, and the option that turns them on (`torch._inductor.list_mode_options`).
_MODES = ("reduce-overhead", "max-autotune")
_OPTION = "triton.cudagraphs"


class OwnGradients:
    """Copies the first gradient of each parameter. Later steps set it to zero in place (`accumulation.py`)."""

    def __init__(self, session: Session) -> None:
        self._setting: Optional[str] = session.value(COMPILE)
        self._is_on_in_script = False
        self._has_own: set[int] = set()
        """The `id` of each parameter whose gradient is outside of a graph."""

    def install(self) -> None:
        if hasattr(torch, "compile"):
            replace(torch, "compile", self._around_compile)

    @property
    def are_needed(self) -> bool:
        """True if the trained modules may run in CUDA graphs of torch.compile."""
        if self._setting is not None:
            return self._setting in _MODES
        config = sys.modules.get("torch._inductor.config")
        return self._is_on_in_script or (config is not None and bool(config.triton.cudagraphs))

    def keep(self, modules: list[nn.Module]) -> None:
        """Moves gradients out of a graph after a backward pass."""
        for module in modules:
            for parameter in module.parameters():
                if parameter.grad is not None and id(parameter) not in self._has_own:
                    self._has_own.add(id(parameter))
                    parameter.grad = parameter.grad.clone()

    def _around_compile(self, original: Function) -> Function:
        def compile(*args: Any, **kwargs: Any) -> Any:
            options = kwargs.get("options") or {}
            self._is_on_in_script |= kwargs.get("mode") in _MODES or bool(options.get(_OPTION))
            return original(*args, **kwargs)

        return compile


class OwnAccumulation:
    """Keeps the gradients of a script that adds gradients up itself, while gputune sets the mode of `torch.compile`.

    The first step shows if the script has several backward passes in a step.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._own_gradients = OwnGradients(hook.session)
        self._passes = 0  # backward passes since the last step
        self._adds_up: Optional[bool] = None

    def install(self) -> None:
        if not self._own_gradients.are_needed:
            return
        self._hook.backward.after.append(self._keep)
        self._hook.optimizers.after_step.append(self._end_step)
        for owner in (Optimizer, nn.Module):
            replace(owner, "zero_grad", self._around_zero_grad)

    def _keep(self) -> None:
        self._passes += 1
        if self._adds_up is not False:
            self._own_gradients.keep(self._hook.modules.found)

    def _end_step(self, optimizer: Any) -> None:
        if self._adds_up is None:
            self._adds_up = self._passes > 1
        self._passes = 0

    def _around_zero_grad(self, original: Function) -> Function:
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
            if self._adds_up:
                original(owner, set_to_none=False)
            else:
                original(owner, *args, **kwargs)

        return zero_grad
