"""Holds steps until the device has finished them, and finds the times of steps whose end has no mark.

Short steps on a device share a mark (`sampling.py`). The time between two marks is divided among the steps in
proportion to the host's times.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Optional

from gputune._hook.timeline import Segment


@dataclass
class Step:
    """A step that ended on the host, perhaps not yet on the device."""

    number: int
    clock: Any
    end: Any
    """The mark at its end; `None` without a mark."""
    ended: float
    """The host's time at its end."""
    samples: Optional[int]
    waits: tuple[float, float]  # seconds of waits for data: of the training thread, and of other threads
    segments: list[Segment]
    host_phases: list[tuple[str, float]]
    """Phases by the host's clock, in seconds."""
    marks: list[str]
    losses: list[Any] = field(default_factory=list)
    is_timed: bool = True
    """True if the phases of this step were timed."""
    cost: float = 0.0
    """Seconds that the marks of its phases took."""
    end_cost: float = 0.0
    """Seconds that the mark at its end took."""
    time: float = 0.0
    """The time of its end, once it is known."""


class StepQueue:
    """The steps that are not reported yet, oldest first."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self._last: Optional[tuple[float, float]] = None
        """The last step with a mark: the host's time at its end, and the time of the mark."""

    def add(self, step: Step) -> None:
        self._steps.append(step)

    def clear(self) -> None:
        self._steps.clear()
        self._last = None

    def finished(self) -> Iterator[Step]:
        """Takes the steps that the device has finished. The caller sets the `time` of steps with a mark."""
        while True:
            marked = next((step for step in self._steps if step.end is not None), None)
            if marked is None or not self._is_reached(marked):
                return
            if self._steps[0] is not marked:
                self._divide(marked)
            while self._steps:
                step = self._steps.popleft()
                yield step
                if step is marked:
                    break
            self._last = (marked.ended, marked.time)

    def rest(self) -> Iterator[Step]:
        """Takes the steps after the last mark, which the device must have finished. Their times follow the host's."""
        host_begin, begin = self._last or (0.0, 0.0)
        while self._steps:
            step = self._steps.popleft()
            step.time = begin + step.ended - host_begin
            yield step

    def wait(self) -> None:
        """Waits until the device has finished all steps."""
        if not self._steps:
            return
        last = self._steps[-1]
        if last.end is not None:
            last.clock.wait(last.end)
        else:
            mark = last.clock.mark_end()
            last.clock.wait(mark)
            if mark is not None:
                last.clock.release(mark)

    def _is_reached(self, step: Step) -> bool:
        began = time.perf_counter()
        is_reached = bool(step.clock.is_reached(step.end))
        step.end_cost += time.perf_counter() - began
        return is_reached

    def _divide(self, marked: Step) -> None:
        """Sets the times of the steps before a marked step, in proportion to the host's times."""
        end = marked.clock.time_of(marked.end)
        first = self._steps[0].ended
        host_begin, begin = self._last or (first, first)
        scale = (end - begin) / max(marked.ended - host_begin, 1e-9)
        for step in self._steps:
            if step is marked:
                return
            step.time = begin + scale * (step.ended - host_begin)
