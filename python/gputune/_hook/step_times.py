"""Computes the seconds of a step's phases, and the device's wait for data, from the step's marks."""

from __future__ import annotations

from typing import Any, Optional

from gputune._hook.timeline import DATA_WAIT, HOST, Segment

#: Copies of host tensors to the device.
COPIES = "host_to_device"
_COMPUTING = ("forward", "backward", "optimizer")


class StepTimes:
    """The times of one step. Omits parts that another stream has not finished, as the hook does not wait for them.

    Create it for each step before the call of `clock.time`, which makes the step's end the base of the clock.
    """

    def __init__(self, clock: Any, end: Any, segments: list[Segment]) -> None:
        self._clock = clock
        self._end = end
        self._segments = segments
        self._has_waits = any(name == DATA_WAIT for name, _, _ in segments)
        self._done: list[Any] = []
        self._gap: Optional[float] = None
        if clock.is_of_device:
            self._leave_out_unfinished()
        if clock.is_base_of_step:
            self._gap = self._find_gap()

    def phases(self) -> dict[str, float]:
        """Seconds by phase, without the wait for data and the script's own code."""
        seconds: dict[str, float] = {}
        for name, begin, end in self._segments:
            if name not in (DATA_WAIT, HOST):
                seconds[name] = seconds.get(name, 0.0) + self._seconds(begin, end)
        return seconds

    def data_wait(self, on_host: float, aside: float = 0.0) -> float:
        """The part of the wait for data that left the device idle; the device may still work on queued operations.

        `on_host` is the wait of the training thread in seconds, `aside` the wait of other threads. `aside` counts only
        within the gap between two steps, and not at all if the gap is unknown.
        """
        felt = on_host
        if self._has_waits:
            felt = min(on_host, sum(self._seconds(begin, end) for name, begin, end in self._segments if name == DATA_WAIT))
        elif self._clock.is_of_device and self._gap is not None:
            felt = min(on_host, self._gap)
        return felt + min(aside, max((self._gap or 0.0) - felt, 0.0))

    def release(self) -> None:
        """Returns the marks, which segments may share, to the clock."""
        for mark in self._done:
            self._clock.release(mark)

    def _leave_out_unfinished(self) -> None:
        segments, clock = self._segments, self._clock
        marks = {id(mark): mark for _, *both in segments for mark in both if mark is not None}
        reached = {key for key, mark in marks.items() if clock.is_reached(mark)}
        self._segments = [part for part in segments if id(part[1]) in reached and id(part[2]) in reached]
        self._done = [marks[key] for key in reached]

    def _find_gap(self) -> Optional[float]:
        """Seconds from the end of the last step to the start of computing in this step."""
        for name, begin, _ in self._segments:
            if name in _COMPUTING:
                return max(self._clock.since_base(begin), 0.0)
        return None

    def _seconds(self, begin: Any, end: Any) -> float:
        """Seconds of a part. In another stream only time within the gap counts, as the rest overlaps with computing."""
        if not self._is_aside(end):
            return max(float(self._clock.seconds(begin, end)), 0.0)
        if self._gap is None:
            return 0.0
        first, last = (self._clock.since_base(mark) for mark in (begin, end))
        return max(min(last, self._gap) - max(first, 0.0), 0.0)

    def _is_aside(self, mark: Any) -> bool:
        """True if a mark is in another stream than the step's end."""
        stream = getattr(mark, "gputune_stream", None)
        own = getattr(self._end, "gputune_stream", None)
        return stream is not None and own is not None and stream != own
