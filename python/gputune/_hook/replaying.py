"""The experiment `replay`: repeats the first batches of the training loader, so that training never waits for data."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

import torch
from torch.utils.data import dataloader as dataloader_module

from gputune._hook import samples
from gputune._hook.batches import tensors_in
from gputune._hook.facts import Facts

#: Most seconds to wait for batches, and most bytes of batches to keep.
_LONGEST_SECONDS = 20.0
_MOST_BYTES = 1 << 30


class Kept:
    """The kept batches of one loader: for each batch a function that returns it, and its tensors with copies."""

    def __init__(self, wanted: int, facts: Facts) -> None:
        self._wanted = wanted
        self._facts = facts
        self._batches: list[tuple[Callable[[], Any], list[tuple[torch.Tensor, torch.Tensor]]]] = []
        self._versions: list[list[int]] = []  # of each tensor, when it last had its original content
        self._samples: list[Optional[samples.HandedOut]] = []
        self.length: Optional[int] = None  # batches of an epoch, if it ended during `fill`
        self._next = 0

    @property
    def is_filled(self) -> bool:
        return bool(self._batches)

    def fill(self, iterator: Any, flush: Any) -> None:
        """Takes the first batches, then ends the loader's workers."""
        begin, size = time.perf_counter(), 0
        try:
            while len(self._batches) < self._wanted and size < _MOST_BYTES:
                try:
                    batch = next(iterator)
                except StopIteration:
                    self.length = len(self._batches)
                    break
                tensors = tensors_in(batch)
                self._batches.append((renewed(batch), [(tensor, tensor.clone()) for tensor in tensors]))
                self._versions.append([_version(tensor) for tensor in tensors])
                self._samples.append(samples.take(iterator))
                size += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
                self._facts.say("replay.batches", len(self._batches))
                flush()  # shows gputune that this process is alive
                if time.perf_counter() - begin > _LONGEST_SECONDS:
                    break
        finally:
            stop_workers(iterator)

    def next(self, receiver: Any) -> Any:
        """The next batch for the iterator `receiver`. Restores tensors that the script has changed in place."""
        place = self._next % len(self._batches)
        samples.note(receiver, self._samples[place])
        self._next += 1
        batch, tensors = self._batches[place]
        for at, (tensor, copy) in enumerate(tensors):
            if _version(tensor) != self._versions[place][at]:
                with torch.no_grad():
                    tensor.copy_(copy)
                self._versions[place][at] = _version(tensor)
        return batch()


class ExperimentIterator(dataloader_module._BaseDataLoaderIter):
    """Base of the experiments' iterators, with the attributes of torch's iterators. It starts no workers."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        try:
            self._length: Optional[int] = len(loader)
        except Exception:  # an iterable dataset or a sampler without a length
            self._length = None
        # Attributes that the base class's `__next__` reads.
        self._sampler_iter = iter(())
        self._num_yielded = 0
        self._dataset_kind = None
        self._IterableDataset_len_called = None
        self._profile_name = "enumerate(DataLoader)#replay"

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("the dataset has no length")
        return self._length

    def _shutdown_workers(self) -> None:
        """Does nothing: an experiment's iterator has no workers."""


class ReplayIterator(ExperimentIterator):
    """Gives the kept batches for the length of an epoch. The iterator `inner` loads them at the first call."""

    def __init__(self, loader: Any, kept: Kept, inner: Any, flush: Any) -> None:
        super().__init__(loader)
        self._kept = kept
        self._inner = inner
        self._flush = flush

    def _next_data(self) -> Any:
        kept = self._kept
        if self._inner is not None:
            inner, self._inner = self._inner, None
            if not kept.is_filled:
                kept.fill(inner, self._flush)
            if getattr(self._loader, "_iterator", None) is inner:
                self._loader._iterator = None  # its persistent workers have ended
        length = kept.length if kept.length is not None else self._length
        if not kept.is_filled or (length is not None and self._num_yielded >= length):
            raise StopIteration
        return kept.next(self)


def stop_workers(iterator: Any) -> None:
    """Ends the workers of an iterator, which would go on loading for a while."""
    end = getattr(iterator, "_shutdown_workers", None)
    if end is not None:
        end()


def renewed(batch: Any) -> Callable[[], Any]:
    """Returns a function that gives the same tensors in new containers each time, which the script may modify.

    A container without tensors is copied only at its top level. Copying nested lists of numbers takes longer than
    receiving them from a worker, so replay would be slower than the unmodified script.
    """
    kind = type(batch)
    if kind in (list, dict) and not tensors_in(batch):
        return batch.copy  # type: ignore[no-any-return]
    is_named = isinstance(batch, tuple) and hasattr(batch, "_fields")
    if (kind in (list, tuple) or is_named) and tensors_in(batch):
        parts = [renewed(part) for part in batch]
        if is_named:
            return lambda: kind(*(part() for part in parts))
        return lambda: kind(part() for part in parts)
    if kind is dict:
        members = {key: renewed(part) for key, part in batch.items()}
        return lambda: {key: part() for key, part in members.items()}
    copied = getattr(batch, "copy", None)  # such as the encodings of transformers
    if isinstance(batch, (torch.Tensor, str, bytes, tuple)) or not callable(copied):
        return lambda: batch
    return lambda: _copied(copied, batch)


def _copied(copied: Callable[[], Any], batch: Any) -> Any:
    try:
        return copied()
    except Exception:
        return batch


def _version(tensor: torch.Tensor) -> int:
    try:
        return tensor._version
    except RuntimeError:  # made in inference mode
        return 0
