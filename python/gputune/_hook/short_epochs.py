"""The experiment `short_epochs`: measures what the end of an epoch costs after a few batches instead of a whole epoch.

Every loader ends after a few batches, and `len` returns this number. So the script itself runs the end of its epochs:
scheduler, evaluation, checkpoint, restart of the loader. The time of left-out evaluation batches is estimated.
"""

from __future__ import annotations

import itertools
import time
from typing import Any, Optional

from torch.utils.data import DataLoader
from torch.utils.data import dataloader as dataloader_module

from gputune._client import rank_and_ranks
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace


class ShortEpochs:
    """Shortens epochs, and times what happens between them."""

    def __init__(self, hook: Hook, batches: int) -> None:
        self._hook = hook
        self._batches = batches
        self._real_length: Function = DataLoader.__len__
        self._evaluation = 0.0
        """Seconds of evaluation in this epoch, with the estimated time of the batches that were left out."""
        self._left_out = 0.0  # the estimated part of these seconds
        self._epochs = 0  # training epochs that began after the first, at the last step
        self._steps: list[float] = []
        """Seconds of the steps of this epoch, without the first step."""
        self._first: Optional[float] = None
        """When the first step of this epoch ended; `None` in the first epoch, which has the warm-up."""
        self._last: Optional[float] = None
        """When the last step ended."""
        self._found: Optional[tuple[float, float]] = None  # seconds of an epoch's end, and of its evaluation

    def install(self) -> None:
        iterator = dataloader_module._BaseDataLoaderIter
        self._real_length = replace(DataLoader, "__len__", self._around_len)
        replace(iterator, "__init__", self._around_begin)
        replace(iterator, "_reset", self._around_begin)
        replace(iterator, "__next__", self._around_next)
        self._hook.steps.endings.append(self._end_step)
        self._hook.steps.edges.append(self._at_edge)

    def _length(self, loader: Any) -> Optional[int]:
        """The batches of a whole epoch; `None` if the loader has no length."""
        try:
            return int(self._real_length(loader))
        except TypeError:
            return None

    def _around_len(self, original: Function) -> Function:
        def __len__(loader: Any) -> int:
            return min(original(loader), self._batches)

        return __len__

    def _around_begin(self, original: Function) -> Function:
        def begin(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            original(iterator, loader, *args, **kwargs)
            length = self._length(loader)
            if length is not None and length > self._batches:
                iterator._sampler_iter = itertools.islice(iterator._sampler_iter, self._batches)
            # Batches of the whole epoch, batches so far, when the iteration began, and when its first batch came.
            iterator._gputune_evaluation = [length, 0, time.perf_counter(), 0.0]

        return begin

    def _around_next(self, original: Function) -> Function:
        def __next__(iterator: Any) -> Any:
            try:
                batch = original(iterator)
            except StopIteration:
                self._end_iteration(iterator)
                raise
            seen = iterator.__dict__.get("_gputune_evaluation")
            if seen is not None:
                seen[1] += 1
                seen[3] = seen[3] or time.perf_counter()
            return batch

        return __next__

    def _end_iteration(self, iterator: Any) -> None:
        length, count, begun, first = iterator.__dict__.pop("_gputune_evaluation", (None, 0, 0.0, 0.0))
        if self._last is None or count == 0 or self._hook.loaders.trains_with(iterator):
            return
        now = time.perf_counter()
        seconds = now - begun
        per_batch = (now - first) / (count - 1) if count > 1 else seconds
        left_out = per_batch * max((length or count) - count, 0)
        self._left_out += left_out
        self._evaluation += seconds + left_out

    def _end_step(self, is_marked: bool) -> None:
        now, last = time.perf_counter(), self._last
        self._last = now
        if last is None:
            return
        if self._hook.loaders.epochs == self._epochs:
            self._steps.append(now - last)
            return
        self._epochs = self._hook.loaders.epochs
        typical = _mean(self._steps[len(self._steps) // 2 :])
        seconds = now - last - typical
        if self._first is not None:  # the first steps of an epoch may be slow as well, until the loader's queue is full
            seconds = now - self._first - typical * (len(self._steps) + 1)
        if self._first is not None or self._found is None:
            self._found = (max(seconds + self._left_out, 0.0), self._evaluation)
        if self._first is not None:
            self._say()
        self._first, self._steps, self._evaluation, self._left_out = now, [], 0.0, 0.0

    def _at_edge(self, is_last: bool) -> None:
        if not is_last or self._hook.stopping.is_leaving:
            return
        if self._found is None and self._last is not None:  # the script trains for one epoch
            self._found = (time.perf_counter() - self._last + self._left_out, self._evaluation)
        self._say()

    def _say(self) -> None:
        if self._found is not None and rank_and_ranks()[0] == 0:
            seconds, evaluation = self._found
            self._hook.facts.say("epoch_end.evaluation_seconds", evaluation)
            self._hook.facts.say("epoch_end.seconds", seconds)
            self._hook.session.flush()


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0
