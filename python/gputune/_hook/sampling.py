"""Chooses the steps that have marks on a device: at their end, and around their phases.

Each mark costs the training thread microseconds, and a timed step has about a dozen. That is several percent of a step
of a millisecond, which would favour large batches. So `_SHARE` limits the cost of all marks.
"""

from __future__ import annotations

#: The share of the training thread's time that ends of steps may take, and that phases may take: 0.5% together.
_SHARE = 0.0025
#: Most seconds between two marked ends, and between two timed steps. Even expensive marks are made so often.
_LONGEST_END, _LONGEST_PHASES = 0.1, 0.5
#: The weight of the newest cost in the mean.
_NEWEST = 0.2


class _Budget:
    """Saves a share of the time until it pays for marks."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._cost = 0.0  # seconds that the marks take
        self._credit = 0.0
        self._last = 0.0  # when marks were last due

    def pay(self, seconds: float) -> None:
        """Adds the seconds that marks took to the mean."""
        self._cost += (seconds - self._cost) * (_NEWEST if self._cost > 0 else 1.0)

    def is_due(self, now: float, seconds: float, is_needed: bool) -> bool:
        """Adds a share of a step's seconds; true if the marks are paid for, or needed in any case."""
        self._credit = min(self._credit + _SHARE * seconds, self._cost)
        if not is_needed and self._credit < self._cost and now - self._last < self._longest:
            return False
        self._credit = max(self._credit - self._cost, -self._cost)
        self._last = now
        return True


class Sampling:
    """The budgets of both kinds of marks."""

    def __init__(self) -> None:
        self._of_ends = _Budget(_LONGEST_END)
        self._of_phases = _Budget(_LONGEST_PHASES)
        self._ended = 0.0  # when the last step ended

    def pay(self, end: float, phases: float) -> None:
        """Notes the seconds that the mark at an end took, and the marks of the step's phases if it was timed."""
        self._of_ends.pay(end)
        if phases > 0:
            self._of_phases.pay(phases)

    def choose(self, now: float, is_end_needed: bool) -> tuple[bool, bool]:
        """At the end of a step: true if this end is marked, and true if the next step is timed.

        A timed step needs the end of the step before.
        """
        seconds, self._ended = max(now - self._ended, 0.0), now
        is_timed = self._of_phases.is_due(now, seconds, False)
        return self._of_ends.is_due(now, seconds, is_end_needed or is_timed), is_timed
