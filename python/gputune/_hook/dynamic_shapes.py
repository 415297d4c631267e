"""The argument `dynamic` of `torch.compile`: whether compiled code takes inputs of any size."""

from __future__ import annotations

from typing import Any

import torch

from gputune._hook.compiling import COMPILE
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace

DYNAMIC = "torch.compile_dynamic"

_VALUES = {"auto": None, "always": True, "never": False}


class DynamicShapes:
    """Passes the argument to each call of `torch.compile`, by the script or by the target `torch.compile`."""

    def __init__(self, hook: Hook) -> None:
        self._session = hook.session
        self._value = _VALUES[hook.session.value(DYNAMIC)]

    def install(self) -> None:
        if not hasattr(torch, "compile"):
            self._session.reject(DYNAMIC, f"torch {torch.__version__} has no torch.compile, which came with 2.0")
            return
        # The target `torch.compile` may be `off`, or may compile only after the first step. So this setting counts as
        # applied now.
        if self._session.value(COMPILE) is not None:
            self._session.apply(DYNAMIC)
        replace(torch, "compile", self._around_compile)

    def _around_compile(self, original: Function) -> Function:
        def compile(model: Any = None, **kwargs: Any) -> Any:
            self._session.apply(DYNAMIC)
            return original(model, **{**kwargs, "dynamic": self._value})

        return compile
