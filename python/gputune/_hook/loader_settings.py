"""Applies the `dataloader.*` settings to a DataLoader, through its attributes."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from gputune._hook.patching import VERSION
from gputune._hook.session import Session

PREFIX = "dataloader."
ACCUMULATION = "torch.grad_accumulation"

#: `prefetch_factor` without workers: torch 1 accepts only 2.
_NO_PREFETCH = None if VERSION >= (2, 0) else 2

#: How workers are started: the name of a method, which torch turns into a context.
_CONTEXT = "multiprocessing_context"
#: Attributes that a later torch has added (`in_order`: 2.6), or that need workers.
_LATER = ("in_order", _CONTEXT)
#: Values that a loader without workers already has, by setting. Settings that are not listed have the value `False`.
_WITHOUT_WORKERS = {"in_order": True}

#: Key of a pair in the saved values: the batch sampler and its old batch size. The other keys name attributes.
_SAMPLER = "sampler, size"


class LoaderSettings:
    """The settings and the rules between them: a loader without workers has no prefetching and no persistence."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.accumulation: int = session.value(ACCUMULATION, 1)
        self.targets = [target for target in session.settings if target.startswith(PREFIX)]
        if self.accumulation > 1:
            self.targets.append(ACCUMULATION)

    def attributes(self, loader: Any, touched: set[str], reasons: dict[str, str]) -> dict[str, Any]:
        """Changes the attributes of a loader before it is iterated. Returns the old values."""
        before: dict[str, Any] = {}

        def put(name: str, value: Any) -> None:
            before.setdefault(name, getattr(loader, name))
            object.__setattr__(loader, name, value)  # bypasses torch's check, which protects `len` and samplers

        self._size_attributes(loader, before, touched, reasons)
        workers = self._workers(loader.num_workers, touched)
        put("num_workers", workers)
        for name in ("pin_memory", "persistent_workers", "prefetch_factor", *_LATER):
            if PREFIX + name in self.targets and self._is_known(loader, name, reasons):
                put(name, self._session.value(PREFIX + name) if workers > 0 or name != _CONTEXT else None)
                touched.add(PREFIX + name)
        if workers == 0:
            self._without_workers(touched, reasons)
            put("prefetch_factor", _NO_PREFETCH)
            put("persistent_workers", False)
            put("timeout", 0)
        elif loader.prefetch_factor is None:
            put("prefetch_factor", 2)
        return before

    def size_of(self, loader: Any) -> Optional[int]:
        """The batch size of a loader; `None` if it cannot be set."""
        sized = _sized(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)
        return None if sized is None else int(sized.batch_size)

    @staticmethod
    def keep_ratio(before: dict[str, Any], first: dict[str, Any]) -> None:
        """Keeps the script's ratio of batch sizes between a loader and the first loader, if both train.

        Both arguments are old values, as `attributes` returns them.
        """
        if _SAMPLER in before and _SAMPLER in first:
            sampler, size = before[_SAMPLER]
            sampler.batch_size = max(round(first[_SAMPLER][0].batch_size * size / first[_SAMPLER][1]), 1)

    def restore(self, loader: Any, before: dict[str, Any]) -> None:
        """Restores the values that `attributes` changed."""
        if getattr(loader, "_iterator", None) is not None:
            loader._iterator = None  # persistent workers that were started with the changed attributes
        for name, value in before.items():
            if name == _SAMPLER:
                sampler, size = value
                sampler.batch_size = size
            else:
                object.__setattr__(loader, name, value)

    def _workers(self, own: int, touched: set[str]) -> int:
        if PREFIX + "num_workers" not in self.targets:
            return own
        touched.add(PREFIX + "num_workers")
        return int(self._session.value(PREFIX + "num_workers"))

    def _without_workers(self, touched: set[str], reasons: dict[str, str]) -> None:
        """Marks settings that need workers as not applied, with a reason, if the script itself chose no workers."""
        if PREFIX + "num_workers" in touched:
            return
        for name in ("prefetch_factor", "persistent_workers", *_LATER):
            if PREFIX + name in touched and self._session.value(PREFIX + name) is not _WITHOUT_WORKERS.get(name, False):
                touched.discard(PREFIX + name)
                reasons[PREFIX + name] = (
                    "the training DataLoader has num_workers=0, and there is nothing to prefetch or to keep without "
                    'workers; give the loader workers, or tune them with apply = "dataloader.num_workers"'
                )

    @staticmethod
    def _is_known(loader: Any, name: str, reasons: dict[str, str]) -> bool:
        if not hasattr(loader, name):
            reasons[PREFIX + name] = f"the DataLoader of torch {torch.__version__} has no {name}"
        return hasattr(loader, name)

    def batch_size(self, own: Optional[int]) -> Optional[int]:
        """Samples per batch of the loader: the batch size divided by the number of accumulated batches per step."""
        size = self._session.value(PREFIX + "batch_size", own)
        if size is None or self.accumulation <= 1:
            return size if size is None else int(size)
        if size % self.accumulation != 0:
            self._session.reject(ACCUMULATION, f"the batch size {size} cannot be divided by {self.accumulation}")
            return int(size)
        return int(size // self.accumulation)

    def _sizes(self) -> list[str]:
        return [target for target in (PREFIX + "batch_size", ACCUMULATION) if target in self.targets]

    def _size_attributes(self, loader: Any, before: dict[str, Any], touched: set[str], reasons: dict[str, str]) -> None:
        if not self._sizes():
            return
        sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        resized = self._resize(sampler, touched, reasons)
        if resized is not None:
            before[_SAMPLER] = resized
            if loader.batch_size is not None:
                before["batch_size"] = loader.batch_size
                object.__setattr__(loader, "batch_size", resized[0].batch_size)

    def _resize(self, sampler: Any, touched: set[str], reasons: dict[str, str]) -> Optional[tuple[Any, int]]:
        """Sets the batch size of the innermost batch sampler. Returns that sampler and its old size."""
        sized = _sized(sampler)
        if sized is not None:
            size = sized.batch_size
            sized.batch_size = self.batch_size(size)
            touched.update(self._sizes())
            return sized, size
        for target in self._sizes():
            reasons[target] = (
                f"the training DataLoader takes its batches from {type(sampler).__name__}, which has no batch_size to "
                'set; pass the batch size to the script instead (apply = "arg", or gputune.config())'
            )
        return None


def _sized(sampler: Any) -> Any:
    """The innermost batch sampler, which has the batch size; `None` without one. Searches 8 nested samplers at most."""
    for _ in range(8):
        inner = getattr(sampler, "batch_sampler", None)
        if inner is None:
            if isinstance(getattr(sampler, "batch_size", None), int) and not isinstance(sampler, _SAMPLERS):
                return sampler
            inner = getattr(sampler, "sampler", None)
            if not isinstance(inner, BatchSampler):
                return None
        sampler = inner
    return None


_SAMPLERS = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def is_training(loader: Any) -> bool:
    """True if the arguments of a loader show that it is for training: its order is random."""
    return any(_is_random(sampler) for sampler in (loader.sampler, loader.batch_sampler) if sampler is not None)


def _is_random(sampler: Any) -> bool:
    for _ in range(8):
        if isinstance(sampler, DistributedSampler):
            return bool(sampler.shuffle)
        if isinstance(sampler, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)):
            return True
        inner = getattr(sampler, "batch_sampler", None)
        if inner is None:
            inner = getattr(sampler, "sampler", None)
        if inner is None:
            return False
        sampler = inner
    return False
