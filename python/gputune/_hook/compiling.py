"""`torch.compile`: the script's own compilation in another mode, or the trained modules compiled in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gputune._hook.modules import Treatment
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace

COMPILE = "torch.compile"

#: The only backend that has modes, and the one without an argument `backend`.
_WITH_MODES = "inductor"


class Compiling(Treatment):
    """Off, or one of the modes of `torch.compile`."""

    def __init__(self, hook: Hook) -> None:
        self._session = hook.session
        self._mode: str = hook.session.value(COMPILE)
        self._is_done = False  # the script compiles by itself
        self._compile: Any = getattr(torch, "compile", None)

    def install(self, hook: Hook) -> None:
        hook.modules.treatments.append(self)
        if self._compile is not None:
            replace(torch, "compile", self._around_compile)

    def call(self, module: nn.Module, call: Function) -> Function:
        if self._mode == "off":
            self._session.apply(COMPILE)
            return call
        if self._compile is None:
            self._session.reject(COMPILE, f"torch {torch.__version__} has no torch.compile, which came with 2.0")
            return call
        self._session.apply(COMPILE)
        if self._is_done:
            return call
        compiled: Function = self._compile(module._call_impl, mode=self._mode)
        return compiled

    def _around_compile(self, original: Function) -> Function:
        def compile(model: Any = None, **kwargs: Any) -> Any:
            if model is None:
                return lambda function: compile(function, **kwargs)
            if self._mode == "off":
                return model
            is_of_script = isinstance(model, nn.Module) or not _is_of_library(model)
            if is_of_script:
                self._is_done = True
            backend = kwargs.get("backend", _WITH_MODES)
            if backend != _WITH_MODES:
                if is_of_script:
                    name = backend if isinstance(backend, str) else getattr(backend, "__name__", "of its own")
                    self._session.reject(COMPILE, f"the script compiles with the backend {name}, which has no modes")
                return original(model, **kwargs)
            kwargs.update(mode=self._mode, options=None)  # torch takes only one of the two
            return original(model, **kwargs)

        return compile


def _is_of_library(function: Any) -> bool:
    """Whether an installed package compiles a function of its own, which says nothing about the script's model."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    owner = getattr(function, "__self__", None)
    is_installed = code is not None and ("site-packages" in code.co_filename or "dist-packages" in code.co_filename)
    return is_installed and not isinstance(owner, nn.Module)
