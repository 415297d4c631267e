"""When things happened: by the host's clock, or by events in the stream of a CUDA device."""

from __future__ import annotations

import time
from typing import Any, Optional

import torch


class HostClock:
    """Marks are seconds of the host's monotonic clock."""

    def mark(self) -> float:
        return time.perf_counter()

    def is_reached(self, mark: float) -> bool:
        return True

    def wait(self, mark: float) -> None:
        pass

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def time(self, mark: float) -> float:
        return mark

    def release(self, mark: float) -> None:
        pass


class CudaClock:
    """Marks are events in the current stream of a device, which reaches them once the work before them is done.

    Nothing waits for the device but `wait`. Times count from a base event whose time on the host's clock is known. The
    end of each step is the next base: `elapsed_time` is a 32-bit float of milliseconds, too coarse over minutes.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool: list[Any] = []
        self._base = self._event()
        self._base.record(torch.cuda.current_stream(device))
        self._base.synchronize()
        self._base_time = time.perf_counter()

    def mark(self) -> Optional[Any]:
        """An event; nothing while a CUDA graph is being captured, which would take it in."""
        if torch.cuda.is_current_stream_capturing():
            return None
        event = self._event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def is_reached(self, mark: Optional[Any]) -> bool:
        return mark is None or bool(mark.query())

    def wait(self, mark: Optional[Any]) -> None:
        if mark is not None:
            mark.synchronize()

    def seconds(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1e3

    def time(self, mark: Optional[Any]) -> float:
        """The mark on the host's clock; the mark is the base of later ones."""
        if mark is None:
            return time.perf_counter()
        self._base_time += float(self._base.elapsed_time(mark)) / 1e3
        self._pool.append(self._base)
        self._base = mark
        return self._base_time

    def release(self, mark: Any) -> None:
        """The mark is not needed any more."""
        if mark is not self._base:
            self._pool.append(mark)

    def _event(self) -> Any:
        return self._pool.pop() if self._pool else torch.cuda.Event(enable_timing=True)


class Phases:
    """Parts of a step, each without those inside it: a closure's forward within the optimizer's step counts once."""

    def __init__(self) -> None:
        self.clock: Any = HostClock()
        self.device: Optional[torch.device] = None
        self._open: list[tuple[str, Any]] = []
        self.segments: list[tuple[str, Any, Any]] = []

    def use_device(self, device: torch.device) -> None:
        """The first module or loss says where the training runs. Marks of the host's clock end there."""
        if self.device is not None:
            return
        self.device = device
        if device.type == "cuda":
            self.clock = CudaClock(device)
            self.segments.clear()
            self._open = [(name, self.clock.mark()) for name, _ in self._open]

    def enter(self, name: str) -> None:
        mark = self.clock.mark()
        if self._open:
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

    def is_inside(self, name: str) -> bool:
        return any(inner == name for inner, _ in self._open) if self._open else False

    def add(self, name: str, begin: Any, end: Any) -> None:
        """A part that was found out to be one when it was over."""
        self.segments.append((name, begin, end))

    def restart(self) -> None:
        """At a step's end within an open phase: its time until now is that step's."""
        if self._open:
            name, begin = self._open[-1]
            self.segments.append((name, begin, self.clock.mark()))
            self._open[-1] = (name, self.clock.mark())

    def take(self) -> list[tuple[str, Any, Any]]:
        segments, self.segments = self.segments, []
        return segments

    def sums(self, segments: list[tuple[str, Any, Any]]) -> dict[str, float]:
        """Seconds by phase. Gives the marks back, which segments may share."""
        seconds: dict[str, float] = {}
        marks: dict[int, Any] = {}
        for name, begin, end in segments:
            if begin is None or end is None:
                continue
            seconds[name] = seconds.get(name, 0.0) + self.clock.seconds(begin, end)
            marks[id(begin)] = begin
            marks[id(end)] = end
        for mark in marks.values():
            self.clock.release(mark)
        return seconds
