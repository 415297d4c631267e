"""Timestamps of a step: by the host's clock, or by events in the streams of a device."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Optional

import torch

from gputune._hook import devices

#: Name of the phase in which training waits for a batch.
DATA_WAIT = "data_wait"

#: The script's own code within a phase, such as an optimizer's closure; it does not count to that phase.
HOST = "host"

#: A part of a step: its name and its two marks.
Segment = tuple[str, Any, Any]


class HostClock:
    """Marks are seconds of the host's monotonic clock."""

    is_of_device = False
    is_sparse = False

    def __init__(self) -> None:
        self._base = 0.0
        self.is_base_of_step = False

    def is_capturing(self) -> bool:
        return False

    def mark(self) -> float:
        return time.perf_counter()

    mark_end = mark

    def is_reached(self, mark: float) -> bool:
        return True

    def wait(self, mark: float) -> None:
        pass

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def since_base(self, mark: float) -> float:
        return mark - self._base

    def time(self, mark: float) -> float:
        self._base, self.is_base_of_step = mark, True
        return mark

    def number(self, tensor: torch.Tensor) -> float:
        return float(tensor)

    def release(self, mark: float) -> None:
        pass


class DeviceClock:
    """Marks are events in the device's current stream. A mark is reached once all earlier work is done.

    Only `wait` waits for the device. The hook makes no query while a CUDA graph is captured, as that would end the
    capture. Times count from a base event with a known time on the host's clock. Each mark at the end of a step is the
    next base: `elapsed_time` is a 32-bit float of milliseconds, too coarse over minutes.
    """

    is_of_device = True

    def __init__(self, device: torch.device, module: Any) -> None:
        self.device = device
        self._module = module
        self.is_capturing: Callable[[], bool] = getattr(module, "is_current_stream_capturing", lambda: False)
        self._pool: list[Any] = []
        self._aside = _stream(device, module)  # a stream in which nothing is queued
        self._base = self._event()
        self._base.record(module.current_stream(device) if self._aside is None else self._aside)
        self._base.synchronize()
        self._base_time = time.perf_counter()
        self.is_base_of_step = False
        self.is_sparse = False
        """True in steps whose phases are not timed."""
        self._cost = 0.0
        self._end_cost = 0.0

    def mark(self) -> Optional[Any]:
        """An event; `None` in steps that are not timed, and while a CUDA graph is captured, which would record it."""
        if self.is_sparse:
            return None
        began = time.perf_counter()
        event = self._record()
        self._cost += time.perf_counter() - began
        return event

    def take_costs(self) -> tuple[float, float]:
        """Seconds that the marks of phases and at ends took since the last call."""
        costs = self._cost, self._end_cost
        self._cost = self._end_cost = 0.0
        return costs

    def mark_end(self) -> Optional[Any]:
        """An event at the end of a step; `None` while a CUDA graph is captured."""
        began = time.perf_counter()
        event = self._record()
        self._end_cost += time.perf_counter() - began
        return event

    def _record(self) -> Optional[Any]:
        if self.is_capturing():
            return None
        event = self._event()
        stream = self._module.current_stream(self.device)
        event.record(stream)
        event.gputune_stream = stream
        return event

    def is_reached(self, mark: Optional[Any]) -> bool:
        return not self.is_capturing() and (mark is None or bool(mark.query()))

    def wait(self, mark: Optional[Any]) -> None:
        if mark is not None and not self.is_capturing():
            mark.synchronize()

    def seconds(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1e3

    def since_base(self, mark: Any) -> float:
        """Seconds since the last end of a step that had a mark."""
        return self.seconds(self._base, mark)

    def time_of(self, mark: Any) -> float:
        """The mark's time on the host's clock."""
        return self._base_time + self.since_base(mark)

    def time(self, mark: Any) -> float:
        """The mark's time on the host's clock. The mark becomes the base of later marks."""
        self._base_time = self.time_of(mark)
        self._pool.append(self._base)
        self._base = mark
        self.is_base_of_step = True
        return self._base_time

    def number(self, tensor: torch.Tensor) -> float:
        """Reads a number that the device has already computed, without waiting for operations queued since."""
        if self._aside is None:
            return float(tensor)
        with self._module.stream(self._aside):
            return float(tensor)

    def release(self, mark: Any) -> None:
        """Returns a mark to the pool."""
        if mark is not self._base:
            self._pool.append(mark)

    def _event(self) -> Any:
        return self._pool.pop() if self._pool else self._module.Event(enable_timing=True)


def _stream(device: torch.device, module: Any) -> Any:
    try:
        return module.Stream(device=device) if hasattr(module, "stream") else None
    except Exception:  # a back end without further streams
        return None


class Phases:
    """The phases of a step. Time counts only to the innermost phase, such as forward in a closure of the optimizer."""

    def __init__(self) -> None:
        self.clock: Any = HostClock()
        self.device: Optional[torch.device] = None
        """The training device; `None` before the first backward pass."""
        self.called_on: Optional[torch.device] = None
        """The device of the last trained module called since the last backward pass."""
        self.thread: Optional[int] = None
        """The training thread; `None` before the first backward pass, and in forked children."""
        self.changed: list[Callable[[torch.device], None]] = []
        """Called when the training device becomes known, and when it changes."""
        self._is_settled = False
        self._open: list[tuple[str, Any]] = []
        self.segments: list[Segment] = []
        self._of_parent: Any = None  # in a child, keeps the parent's events alive: to free them would touch the device
        self.last_end: Any = None
        """The mark at the end of the last step; `None` without a mark."""
        self.ended: Optional[float] = None
        """The host's time at the end of the last step."""
        self.host_phases: list[tuple[str, float]] = []
        """Phases of this step that are known only by the host's clock, in seconds."""
        self.around_gaps: Optional[tuple[Callable[[], None], Callable[[], None]]] = None
        """Called when a gap between phases ends, and when a gap begins."""
        os.register_at_fork(after_in_child=self._forget)

    def decide(self, loss: Optional[torch.device]) -> None:
        """Finds the training device from a backward pass: the loss's device; if that is the CPU, the module's device.

        A forward pass alone proves nothing: it may be a trial on the CPU before the model is moved. After the first
        step only a move away from the CPU counts.
        """
        called, self.called_on = self.called_on, None
        device = loss if called is None or (loss is not None and loss.type != "cpu") else called
        if device is None or device == self.device:
            return
        if self._is_settled and self.device is not None and self.device.type != "cpu":
            return
        self._use(device)

    def settle(self) -> None:
        """Fixes the training device after the first step."""
        if self.device is None:
            self.decide(None)
        self._is_settled = True

    def _use(self, device: torch.device) -> None:
        """Switches to a device and its clock; drops the marks of the old clock."""
        module = devices.module_of(device)
        if module is not None and getattr(module, "is_current_stream_capturing", lambda: False)():
            return
        self.device = device
        self.thread = threading.get_ident()
        if module is not None or self.clock.is_of_device:
            self.clock = HostClock() if module is None else DeviceClock(device, module)
            self.segments.clear()
            self.last_end = self.ended = None
            self._open = [(name, self.clock.mark()) for name, _ in self._open]
        for change in self.changed:
            change(device)

    def _forget(self) -> None:
        """Resets the state in a forked child, which must not touch the parent's device, not even free its events."""
        self._of_parent = (self.clock, self.segments, self._open)
        self.clock = HostClock()
        self.device = self.called_on = self.thread = None
        self._is_settled = False
        self._open = []
        self.segments = []
        self.host_phases = []
        self.last_end = self.ended = None
        self.around_gaps = None

    def enter_outside(self, name: str) -> None:
        """Enters a rare phase between steps, which is timed in any case."""
        self.clock.is_sparse = False
        self.enter(name)

    def enter(self, name: str) -> None:
        mark = self.clock.mark()
        if not self._open:
            self.end_gap()
        else:
            outer, begin = self._open[-1]
            self.segments.append((outer, begin, mark))
        self._open.append((name, mark))

    def leave(self) -> None:
        if not self._open:
            return
        name, begin = self._open.pop()
        mark = self.clock.mark()
        self.segments.append((name, begin, mark))
        if self._open:
            self._open[-1] = (self._open[-1][0], mark)
        else:
            self.begin_gap()

    def end_gap(self) -> None:
        """Notes that the loop's own code pauses, such as for the loader."""
        if self.around_gaps is not None:
            self.around_gaps[0]()

    def begin_gap(self) -> None:
        """Notes that the loop's own code goes on."""
        if self.around_gaps is not None:
            self.around_gaps[1]()

    @property
    def is_any_open(self) -> bool:
        return bool(self._open)

    def is_within(self, name: str) -> bool:
        """True if `name` is the innermost open phase."""
        return bool(self._open) and self._open[-1][0] == name

    def is_inside(self, name: str) -> bool:
        return any(inner == name for inner, _ in self._open)

    def add(self, name: str, begin: Any, end: Any) -> None:
        """Adds a part that was recognised only at its end."""
        self.segments.append((name, begin, end))

    def mark_wait(self) -> Any:
        """A mark before a loader's call; `None` in evaluation, which has no gradients and is no part of a step."""
        if not self.clock.is_of_device or self.thread != threading.get_ident() or not torch.is_grad_enabled():
            return None
        return self.clock.mark()

    def add_wait(self, begin: Any) -> None:
        """Adds the wait for data once the loader has given the batch."""
        if begin is not None:
            self.segments.append((DATA_WAIT, begin, self.clock.mark()))

    def restart(self) -> None:
        """Splits an open phase at the end of a step. The time until now counts to the step that ends."""
        if self._open:
            name, begin = self._open[-1]
            self.segments.append((name, begin, self.clock.mark()))
            self._open[-1] = (name, self.clock.mark())

    def take(self) -> list[Segment]:
        segments, self.segments = self.segments, []
        return segments

    def take_host_phases(self) -> list[tuple[str, float]]:
        taken, self.host_phases = self.host_phases, []
        return taken
