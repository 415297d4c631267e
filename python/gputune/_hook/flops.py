"""Counts the floating-point operations of one step, by the formulas of `torch.utils.flop_counter`.

The hook counts the second step of a process, and the first step after a change of settings. gputune drops both steps as
warm-up. Counting runs Python code for each operation, which makes the step slower, so the hook marks the step.
"""

from __future__ import annotations

import os
from typing import Any, Optional

import torch
from torch import nn

from gputune._client import rank_and_ranks
from gputune._hook import model_facts
from gputune._hook.parts import Hook

#: The mark of the counted step.
MARK = "flops"
_COMPILE = "torch.compile"


class Flops:
    """Counts one step per process and, in a live process, one step per settings.

    A step is not counted if its operations are hidden from Python: compiled code, CUDA graphs, threads of `DataParallel`,
    and sharded tensors (`DTensor`).
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._mode: Any = None
        os.register_at_fork(after_in_child=self._leave)  # a loader's worker counts nothing

    def install(self) -> None:
        self._hook.steps.endings.append(self._end_step)
        self._hook.steps.beginnings.append(self._begin_anew)

    def _begin_anew(self) -> None:
        self._leave()
        self._hook.steps.flops = None
        self._enter()

    def _end_step(self, is_marked: bool) -> None:
        mode = self._leave()
        if mode is not None and mode.is_whole and mode.total > 0:
            self._hook.steps.flops = mode.total * rank_and_ranks()[1]
        if self._hook.steps.number == 1:
            self._enter()

    def _enter(self) -> None:
        if rank_and_ranks()[0] != 0 or not self._can_count():
            return
        mode = _counting_mode(self._hook)
        if mode is not None:
            mode.__enter__()
            self._mode = mode
            self._hook.steps.mark(MARK)

    def _leave(self) -> Any:
        """Ends counting. Returns the dispatch mode, which has the count; `None` if nothing was counted."""
        mode, self._mode = self._mode, None
        if mode is None:
            return None
        # The script may have entered a mode of its own, or another thread may have forked this process.
        if _innermost() is not mode:
            mode.is_whole = False
            return None
        mode.__exit__(None, None, None)
        return mode

    def _can_count(self) -> bool:
        """True if Python sees all operations of a step."""
        modules = self._hook.modules.found
        if self._hook.session.value(_COMPILE, "off") != "off" or model_facts.is_compiled(modules):
            return False
        if self._hook.steps.graphs.are_captured or _innermost() is not None:
            return False
        return not any(isinstance(module, nn.DataParallel) for module in modules)


def _innermost() -> Any:
    """The dispatch mode that gets each operation first; `None` without a mode."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    return _get_current_dispatch_mode()


def _counting_mode(hook: Hook) -> Any:
    """A dispatch mode that adds up the operations; `None` if torch is older than 2.1, which brought the formulas."""
    try:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils.flop_counter import flop_registry
    except Exception:  # `flop_counter` also imports Triton, which may be broken
        return None

    class Counting(TorchDispatchMode):
        """Runs each operation, and counts the operations with a formula: matrix products, convolutions, attention."""

        def __init__(self) -> None:
            super().__init__()
            self.total = 0
            self.is_whole = True

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Optional[dict[str, Any]] = None) -> Any:
            kwargs = kwargs or {}
            result = function(*args, **kwargs)
            if self.is_whole and not hook.outside.is_evaluating:
                self._count(function, types, args, kwargs, result)
            return result

        def _count(self, function: Any, types: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
            packet = getattr(function, "_overloadpacket", None)
            if packet is None:  # a higher-order operator, which hides its inner operations
                self.is_whole = False
            formula = flop_registry.get(packet)
            if formula is None:
                return
            try:
                self.total += int(formula(*args, **kwargs, out_val=result))
            except Exception:  # arguments that the formula does not know
                self.is_whole = False
            if types:  # sharded or quantised tensors, whose sizes differ from the sizes that this process computes
                self.is_whole = False

    return Counting()
