"""The experiment `largest_batch`: trains on the largest batch of an epoch, to find the memory that its step needs.

The hook first reads the loader without training, for a bounded time and at most for an epoch. A later step of the
script gets the largest of these batches in place of its own.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

from gputune._client import rank_and_ranks
from gputune._hook.batch_sizes import BatchSizes, why_not_read
from gputune._hook.marks import WARM_UP_STEPS
from gputune._hook.parts import Hook
from gputune._hook.renewal import new_iterator
from gputune._hook.replaying import stop_workers

#: Number of steps after which the largest batch is handed out. The memory peaks of warm-up have then been reset.
_GIVE_AFTER = WARM_UP_STEPS + 2
#: Number of steps within which a step uses the largest batch. A wrapper may fetch two batches ahead of their steps.
_USED_AFTER = 3


class LargestBatch:
    """Finds the largest batch, and hands it out once."""

    def __init__(self, hook: Hook, seconds: float) -> None:
        self._hook = hook
        self._seconds = seconds
        self._is_read = False
        self._batch: Any = None
        self._given_at: Optional[int] = None
        """Number of steps when the batch was handed out."""
        self._sizes = BatchSizes()

    def install(self) -> None:
        self._hook.loaders.largest = self
        self._hook.steps.endings.append(self._end_step)

    def read(self, loader: Any, between: Callable[[], None]) -> None:
        """Reads the loader, once. `between` is called after each batch: it obeys orders, and sends waiting events."""
        if self._is_read:
            return
        self._is_read = True
        if rank_and_ranks()[1] > 1 or why_not_read(loader) is not None:
            self._hook.facts.say("batches.trained", False)
            return
        iterator = new_iterator(loader)
        end = time.perf_counter() + self._seconds
        try:
            for batch in iterator:
                if self._sizes.add(batch):
                    self._batch = batch
                if time.perf_counter() > end:
                    break
                between()
        finally:
            stop_workers(iterator)
        self._sizes.say_facts(self._hook.facts, None)

    def instead_of(self, batch: Any) -> Any:
        """The batch to hand out in place of `batch`: once after warm-up the largest batch, else `batch` itself."""
        if self._batch is None or self._hook.steps.number < _GIVE_AFTER:
            return batch
        largest, self._batch = self._batch, None
        self._given_at = self._hook.steps.number
        return largest

    def _end_step(self, is_marked: bool) -> None:
        if self._given_at is None or self._hook.steps.number < self._given_at + _USED_AFTER:
            return
        self._given_at = None
        self._hook.steps.settle()
        self._hook.facts.say("batches.peak_bytes", self._hook.memory.peak_bytes())
        self._hook.facts.say("batches.trained", True)
        self._hook.session.flush()
