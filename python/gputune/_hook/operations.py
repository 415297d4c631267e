"""Times torch operations that a loop calls on the CPU: losses, clipping, sums. They count as computing, not Python."""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

import torch

try:
    from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode, _push_mode
except ImportError:  # an older torch
    TorchFunctionMode = None  # type: ignore[assignment,misc]

from gputune._hook.timeline import Phases

#: Every eighth step is timed: timing adds microseconds to each operation and to each read of a tensor's attribute.
_EVERY = 8
#: Operations that are not timed: the time to read a number counts to the loop, and backward is a separate phase.
_NOT_TIMED = frozenset({"backward", "item", "tolist", "numpy", "__float__", "__int__", "__bool__", "__get__", "__index__"})


class Operations:
    """Times operations in the gaps between phases."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self._mode: Any = None if TorchFunctionMode is None else _mode_of(self)
        self._steps = 0
        self._is_on = False
        self.seconds = 0.0
        self.seconds_of_step = 0.0
        self.steps_seen = 0
        self.is_inside = False

    def install(self) -> None:
        if self._mode is not None:
            self._phases.around_gaps = (self._suspend, self._resume)

    def end_step(self, is_marked: bool) -> None:
        """Notes the end of a step, and turns timing on for every eighth step."""
        if self._is_on and not is_marked:
            self.seconds += self.seconds_of_step
            self.steps_seen += 1
        self.seconds_of_step = 0.0
        if self._is_on:
            self._suspend()
        self._steps += 1
        self._is_on = self._steps % _EVERY == 0 and not self._phases.clock.is_of_device and self._mode is not None
        self._resume()

    @property
    def seconds_per_step(self) -> Optional[float]:
        """Mean wall time of the operations per step; `None` if no step was timed."""
        return self.seconds / self.steps_seen if self.steps_seen else None

    def _suspend(self) -> None:
        if self._is_on and self._is_counting_here() and _get_current_function_mode() is self._mode:
            _pop_mode()

    def _resume(self) -> None:
        if self._is_on and self._is_counting_here() and not self._phases.is_any_open:
            if _get_current_function_mode() is None:
                _push_mode(self._mode)

    def _is_counting_here(self) -> bool:
        return not self.is_inside and self._phases.thread == threading.get_ident()


def _mode_of(operations: Operations) -> Any:
    clock = time.perf_counter

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") in _NOT_TIMED or operations.is_inside:
                return func(*args, **(kwargs or {}))
            operations.is_inside = True
            begin = clock()
            try:
                return func(*args, **(kwargs or {}))
            finally:
                operations.seconds_of_step += clock() - begin
                operations.is_inside = False

    return Mode()
