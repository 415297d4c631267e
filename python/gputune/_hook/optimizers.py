"""Wraps the steps of optimizers, and sets `torch.fused_optimizer`."""

from __future__ import annotations

import inspect
import weakref
from typing import Any, Callable, Optional

import torch
from torch.optim import Optimizer

from gputune._hook.patching import Function, replace
from gputune._hook.session import Session
from gputune._hook.steps import Steps
from gputune._hook.timeline import HOST, Phases

FUSED = "torch.fused_optimizer"


class Optimizers:
    """Wraps `step` of each optimizer class when its first instance is made."""

    def __init__(self, session: Session, phases: Phases, steps: Steps) -> None:
        self._session = session
        self._phases = phases
        self._steps = steps
        self._stepping: set[int] = set()
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self.has_any = False
        """True once the script has made an optimizer."""
        self.may_step: Callable[[Any], bool] = lambda optimizer: True
        """Returns true if the step may run; accumulation skips some steps."""
        self.before_step: list[Callable[[Any], None]] = []
        """Called with the optimizer when the gradients are complete, before the optimizer uses them."""
        self.after_step: list[Callable[[Any], None]] = []

    def install(self) -> None:
        name = "_patch_step_function" if hasattr(Optimizer, "_patch_step_function") else "_hook_for_profile"
        replace(Optimizer, name, self._around_patch)
        if FUSED in self._session.settings:
            self._install_fused()

    def _around_patch(self, original: Function) -> Function:
        """Wraps `step` after torch has wrapped it, which happens when an instance is made."""

        def patch_step(optimizer: Any) -> None:
            original(optimizer)
            self.alive.add(optimizer)
            self.has_any = True
            kind = type(optimizer)
            if not getattr(kind.step, "_is_gputune", False):
                replace(kind, "step", self._around_step)
                kind.step._is_gputune = True

        return patch_step

    def _around_step(self, original: Function) -> Function:
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            key = id(optimizer)
            if key in self._stepping:  # called by the `step` of a subclass, which is counted
                return original(optimizer, *args, **kwargs)
            closure = _closure(args, kwargs)
            if not self.may_step(optimizer):
                return closure() if closure is not None else None
            if closure is not None:
                args, kwargs = _with_closure(args, kwargs, self._around_closure(optimizer, closure))
            trains = closure is not None or _has_gradients(optimizer)
            self._stepping.add(key)
            self._phases.enter("optimizer")
            try:
                if closure is None:
                    for prepare in self.before_step:
                        prepare(optimizer)
                result = original(optimizer, *args, **kwargs)
            finally:
                self._phases.leave()
                self._stepping.discard(key)
            for finish in self.after_step:
                finish(optimizer)
            self._steps.end_step(optimizer, trains)
            return result

        return step

    def _around_closure(self, optimizer: Any, closure: Function) -> Function:
        """Wraps a closure, which computes the gradients within the step."""

        def run() -> Any:
            self._phases.enter(HOST)
            try:
                loss = closure()
            finally:
                self._phases.leave()
            for prepare in self.before_step:
                prepare(optimizer)
            return loss

        return run

    def _install_fused(self) -> None:
        for kind in vars(torch.optim).values():
            if inspect.isclass(kind) and issubclass(kind, Optimizer) and "fused" in inspect.signature(kind).parameters:
                replace(kind, "__init__", self._around_init)

    def _around_init(self, original: Function) -> Function:
        is_fused = bool(self._session.value(FUSED))

        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            own = dict(kwargs)
            if is_fused:
                kwargs.update(fused=True, foreach=None)
            elif kwargs.get("fused"):
                kwargs["fused"] = None  # torch's default; False would also turn `foreach` off
            try:
                original(optimizer, *args, **kwargs)
                self._session.apply(FUSED)
            except RuntimeError as error:
                if not is_fused:
                    raise
                self._session.reject(FUSED, str(error))
                original(optimizer, *args, **own)

        return __init__


def _has_gradients(optimizer: Any) -> bool:
    """False if no parameter has a gradient, so torch's own optimizers change nothing. True for other optimizers."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return True
    return any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])


def _closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Optional[Function]:
    """The closure that a step is called with; `None` without a closure."""
    return args[0] if args and callable(args[0]) else kwargs.get("closure")


def _with_closure(
    args: tuple[Any, ...], kwargs: dict[str, Any], closure: Function
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the closure replaced; positional arguments stay positional, as parameter names vary."""
    if args and callable(args[0]):
        return (closure, *args[1:]), kwargs
    return args, {**kwargs, "closure": closure}
