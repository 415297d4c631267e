"""Compares the sizes of a loader's batches: padding and images of several sizes make some batches much larger than others."""

from __future__ import annotations

from typing import Any, Optional

from torch.utils.data import IterableDataset

from gputune._hook.batches import tensors_in
from gputune._hook.facts import Facts

#: Batches after which no more are compared if all have the same size.
_LOOKS = 16
#: How many times as large as the mean the largest batch is at least, to be reported.
_LEAST = 1.1


class BatchSizes:
    """The sizes of one loader's batches, in elements of their tensors."""

    def __init__(self) -> None:
        self.batches = 0
        self._sum = 0
        self._largest = 0

    def add(self, batch: Any) -> bool:
        """Compares a batch with those before. Returns true if it is the largest."""
        if self.batches == _LOOKS and self._largest * self.batches == self._sum:
            return False
        size = sum(tensor.numel() for tensor in tensors_in(batch))
        self.batches += 1
        self._sum += size
        is_largest = size > self._largest
        self._largest = max(size, self._largest)
        return is_largest

    def say_facts(self, facts: Facts, not_read: Optional[str]) -> None:
        """Reports how much larger the largest batch is, if sizes differ."""
        if self._sum == 0 or self._largest * self.batches < _LEAST * self._sum:
            return
        facts.say("batches.compared", self.batches)
        facts.say("batches.largest", self._largest * self.batches / self._sum)
        facts.say("batches.not_read", not_read)


def why_not_read(loader: Any) -> Optional[str]:
    """Why a loader cannot be read ahead without taking data from the script; `None` if it can."""
    if isinstance(loader.dataset, IterableDataset):
        return "its dataset is iterable"
    if hasattr(loader.batch_sampler, "__next__") or hasattr(loader.sampler, "__next__"):
        return "its sampler can be read once"
    return None
