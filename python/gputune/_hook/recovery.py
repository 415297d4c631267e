"""Notices that memory ran out, and that the script then trains with smaller batches."""

from __future__ import annotations

from typing import Optional

from gputune._hook.facts import Facts

#: Number of steps to observe after memory ran out. If no loader has a batch size, equal sizes of all these steps count
#: as the new batch size.
_STEADY = 3


class Recovery:
    """Compares the batch for which memory ran out with the batches after it."""

    def __init__(self) -> None:
        self._failed = 0  # samples of the batch for which memory ran out
        self._sizes: list[Optional[int]] = []  # samples of the steps since then

    def fail(self, samples: Optional[int]) -> None:
        """Notes a batch for which memory ran out. After several such batches, the largest counts."""
        self._failed = max(self._failed, samples or 0)
        self._sizes.clear()

    def end_step(self, facts: Facts, loader_size: Optional[int], samples: Optional[int]) -> None:
        """Reports the old and the new batch size once batches are smaller.

        The new size is `loader_size`, or else `samples` if it is the same in several steps.
        """
        if not self._failed:
            return
        self._sizes.append(samples)
        is_over, size = len(self._sizes) >= _STEADY, loader_size
        if size is None and is_over and len(set(self._sizes)) == 1:
            size = samples
        if size is not None and size < self._failed:
            facts.say("recovery.from", self._failed)
            facts.say("recovery.to", size)
            is_over = True
        if is_over:
            self._failed = 0
