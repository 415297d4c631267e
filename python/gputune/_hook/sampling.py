"""Chooses the steps whose phases are timed on a device.

Each event costs the training thread microseconds, and a step has about a dozen. That is several percent of a step of a
millisecond, which would favour large batches. So only some steps have all marks: `_SHARE` limits their cost. The end of
each step always has a mark.
"""

from __future__ import annotations

#: The share of the training thread's time that marks within steps may take.
_SHARE = 0.005
#: At least one step in this many is timed, so that phases are known in any case.
_RAREST = 64
#: The weight of the newest cost in the mean.
_NEWEST = 0.2


class Sampling:
    """Saves the allowed share of each step's time until it pays for a timed step."""

    def __init__(self) -> None:
        self._cost = 0.0  # seconds that the marks of a timed step take
        self._credit = 0.0
        self._steps = 0  # since the last timed step
        self._ended = 0.0  # when the last step ended

    def pay(self, seconds: float) -> None:
        """Adds the seconds that the marks of a timed step took to the mean."""
        self._cost += (seconds - self._cost) * (_NEWEST if self._cost > 0 else 1.0)

    def is_due(self, now: float) -> bool:
        """At the end of a step: true if the next step is to be timed."""
        self._credit = min(self._credit + _SHARE * max(now - self._ended, 0.0), self._cost)
        self._ended = now
        self._steps += 1
        if self._credit < self._cost and self._steps < _RAREST:
            return False
        self._credit = 0.0
        self._steps = 0
        return True
