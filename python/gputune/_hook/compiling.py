"""`torch.compile`: changes the mode of the script's own compilation, or compiles the trained modules in place."""

from __future__ import annotations

import weakref
from typing import Any, Optional

import torch
from torch import nn

from gputune._hook.modules import Treatment
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, is_compiling, replace

COMPILE = "torch.compile"

#: The only backend with modes, and the default of the argument `backend`.
_WITH_MODES = "inductor"


class Compiling(Treatment):
    """Applies the setting: `off`, or a mode of `torch.compile`.

    `torch.compile` queries CUDA even for a module on the CPU. To avoid an early query, a module on the CPU runs
    uncompiled until the training device is known. A script may call its model on the CPU as a trial, before it moves
    the model to a GPU.
    """

    def __init__(self, hook: Hook) -> None:
        self._phases = hook.phases
        self._waiting: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # modules that are not compiled yet
        self._session = hook.session
        self._mode: str = hook.session.value(COMPILE)
        self._is_compiled_by_script = False
        self._compile: Any = getattr(torch, "compile", None)

    def install(self, hook: Hook) -> None:
        hook.modules.treatments.append(self)
        hook.steps.checks.append(self._look)
        if self._compile is not None:
            replace(torch, "compile", self._around_compile)

    def call(self, module: nn.Module, call: Function) -> Function:
        if self._mode == "off":
            self._session.apply(COMPILE)
            return call
        if self._compile is None:
            self._session.reject(COMPILE, f"torch {torch.__version__} has no torch.compile, which came with 2.0")
            return call
        if self._is_compiled_by_script:
            self._session.apply(COMPILE)
            return call
        return self._compiled_when_placed(module, call)

    def _compiled_when_placed(self, module: nn.Module, call: Function) -> Function:
        """Returns a call that compiles the module once it is not on the CPU, or once the training device is known."""
        found = weakref.ref(module)
        compiled: Optional[Function] = None

        def call_when_placed(*args: Any, **kwargs: Any) -> Any:
            nonlocal compiled
            if compiled is None:
                alive: Any = found()
                if is_compiling() or (self._phases.device is None and _is_on_host(alive)):
                    return call(*args, **kwargs)
                self._waiting.discard(alive)
                self._session.apply(COMPILE)
                compiled = self._compile(alive._call_impl, mode=self._mode)
            return compiled(*args, **kwargs)

        self._waiting.add(module)
        return call_when_placed

    def _look(self) -> None:
        """At the end of the first step: notes the setting as applied for modules that trained on the CPU.

        They are compiled at their next call.
        """
        for module in list(self._waiting):
            is_trained = self._phases.device == torch.device("cpu") or any(p.grad is not None for p in module.parameters())
            if is_trained and _is_on_host(module):
                self._session.apply(COMPILE)

    def _around_compile(self, original: Function) -> Function:
        def compile(model: Any = None, **kwargs: Any) -> Any:
            if model is None:
                return lambda function: compile(function, **kwargs)
            if self._mode == "off":
                return model
            is_of_script = isinstance(model, nn.Module) or not _is_of_library(model)
            if is_of_script:
                self._is_compiled_by_script = True
            backend = kwargs.get("backend", _WITH_MODES)
            if backend != _WITH_MODES:
                if is_of_script:
                    name = backend if isinstance(backend, str) else getattr(backend, "__name__", "of its own")
                    self._session.reject(COMPILE, f"the script compiles with the backend {name}, which has no modes")
                return original(model, **kwargs)
            kwargs.update(mode=self._mode, options=None)  # torch accepts a mode or options, not both
            return original(model, **kwargs)

        return compile


def _is_on_host(module: nn.Module) -> bool:
    return all(parameter.device.type in ("cpu", "meta") for parameter in module.parameters())


def _is_of_library(function: Any) -> bool:
    """True if `function` belongs to an installed package and is no method of a module: it is not the script's model."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    owner = getattr(function, "__self__", None)
    is_installed = code is not None and ("site-packages" in code.co_filename or "dist-packages" in code.co_filename)
    return is_installed and not isinstance(owner, nn.Module)
