"""Compares the sizes of a loader's batches: padding and images of several sizes make some batches much larger."""

from __future__ import annotations

from typing import Any, Optional

from torch.utils.data import IterableDataset

from gputune._hook.batches import tensors_in
from gputune._hook.facts import Facts

#: If this many batches from the start have the same size, no more batches are compared.
_LOOKS = 16
#: Least ratio of the largest batch to the mean batch for which the ratio is reported.
_LEAST_RATIO = 1.1


class BatchSizes:
    """The sizes of one loader's batches, in elements of their tensors."""

    def __init__(self) -> None:
        self.batches = 0
        self._sum = 0
        self._largest = 0

    def add(self, batch: Any) -> bool:
        """Compares a batch with the earlier batches. Returns true if it is larger than all of them."""
        if self.batches == _LOOKS and self._largest * self.batches == self._sum:
            return False
        size = sum(tensor.numel() for tensor in tensors_in(batch))
        self.batches += 1
        self._sum += size
        is_largest = size > self._largest
        self._largest = max(size, self._largest)
        return is_largest

    @property
    def are_alike(self) -> bool:
        """True if all batches so far, and more than one, have the same size."""
        return self.batches > 1 and self._largest * self.batches == self._sum

    def say_facts(self, facts: Facts, not_read: Optional[str]) -> None:
        """Reports the ratio of the largest batch to the mean, if sizes differ. `not_read`: see `why_not_read`."""
        if self._sum == 0 or self._largest * self.batches < _LEAST_RATIO * self._sum:
            return
        facts.say("batches.compared", self.batches)
        facts.say("batches.largest", self._largest * self.batches / self._sum)
        facts.say("batches.not_read", not_read)


def why_not_read(loader: Any) -> Optional[str]:
    """Why reading a loader ahead would take data from the script; `None` if it would not."""
    if isinstance(loader.dataset, IterableDataset):
        return "its dataset is iterable"
    if hasattr(loader.batch_sampler, "__next__") or hasattr(loader.sampler, "__next__"):
        return "its sampler can be read once"
    return None
