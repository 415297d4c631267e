"""Finds datasets of iterable style whose workers all yield the same samples.

A worker of such a dataset must choose its own part, with `get_worker_info` in `__iter__` or in `worker_init_fn` (torch's
documentation of `torch.utils.data.IterableDataset`). A call of `get_worker_info` sets a number in a mapped file.
"""

from __future__ import annotations

import collections
import inspect
import os
import sys
from typing import Any, Optional

import torch.utils.data as data
from torch.utils.data._utils import collate as collate_module
from torch.utils.data._utils import worker as worker_module

from gputune._hook.batches import tensors_in
from gputune._hook.dataset_watch import AtWorkerStart, mapped
from gputune._hook.patching import Function, replace


def needs_parts(loader: Any) -> bool:
    """True if the workers of a loader must share out the samples among themselves."""
    return isinstance(loader.dataset, data.IterableDataset) and loader.num_workers > 1


_asked: Any = None
"""In a worker: a number in a mapped file, 1 if code in the worker has called `get_worker_info`."""


def install() -> None:
    """Watches calls of `get_worker_info`. To be called before scripts import that function."""
    if not hasattr(data.get_worker_info, "__wrapped__"):
        replace(worker_module, "get_worker_info", _around)
        data.get_worker_info = worker_module.get_worker_info


def _around(original: Function) -> Function:
    def get_worker_info() -> Any:
        # Torch's collation calls this only to learn whether it is in a worker.
        if _asked is not None and sys._getframe(1).f_code.co_filename != collate_module.__file__:
            _asked[0] = 1.0
        return original()

    return get_worker_info


class WorkerAsks(AtWorkerStart):
    """Notes whether the code in a worker asks for its part."""

    def begin(self, folder: str, name: str) -> None:
        global _asked
        _asked = mapped(os.path.join(folder, f"asks-{name}"), 1)
        install()  # a worker that was not forked has no wrapper yet


#: Most samples of an iteration that are compared. Two workers that give n samples each from a shuffled dataset of N
#: samples have about n²/N samples in common. With n = 20,000 and N = ten million these are 40 samples.
_COMPARED = 20_000

#: Least number of samples that workers must have in common before they count as repeating. A round number.
_IN_COMMON = 8


class Parts:
    """Finds out whether the workers of a loader repeat each other's samples. Keeps no reference to the loader."""

    def __init__(self, loader: Any, number: int, before: Optional[Parts]) -> None:
        """`before` is the `Parts` of the loader's previous iteration."""
        self._kind = type(loader.dataset)
        self._workers = loader.num_workers
        # A `worker_init_fn` gets the worker's number as its argument, so it may choose the worker's part.
        self._may_know = loader.worker_init_fn is not None
        self._number = number
        self._first: list[list[float]] = []
        self._batches = 0
        self._givers: dict[int, int] = {}
        """The worker that gave a sample first, by the sample's hash."""
        self._again = collections.Counter[bool]()
        """The number of samples that came again: from the same worker (true), or from another worker (false)."""
        self._has_common = before is not None and before._has_common
        self.delivering: Optional[int] = None
        """The number of workers that have samples, if other workers have none."""

    def add(self, batch: Any, iterator: Any) -> None:
        """Notes one of the first batches.

        Workers deliver in a fixed rotation. After one batch of each worker, only workers without samples have ended.
        """
        self._batches += 1
        if self._batches == self._workers:
            working = sum(map(bool, getattr(iterator, "_workers_status", ())))
            self.delivering = working if 0 < working < self._workers else None
        if len(self._first) <= self._workers:
            self._first.append([float(tensor.double().sum()) for tensor in tensors_in(batch)[:4]])
        if len(self._givers) < _COMPARED and not self._has_common and all(getattr(iterator, "_workers_status", ())):
            self._compare(batch, getattr(iterator, "_rcvd_idx", 0) - 1)

    def _compare(self, batch: Any, place: int) -> None:
        """Looks for samples that another worker also gave. `place` is the batch's number in this iteration, from 0.

        Samples that also come again from the same worker are alike by chance, or the data have few values.
        """
        if place <= 0:  # the first batch of an iteration
            self._givers.clear()
            self._again.clear()
        worker = place % self._workers
        for sample in _hashes(batch):
            giver = self._givers.get(sample)
            if giver is None:
                self._givers[sample] = worker
            else:
                self._again[giver == worker] += 1
        # If samples are alike by chance, one in `self._workers` of them comes again from the same worker. Four times as
        # many from other workers as that is no chance; the factor is a round number.
        across, chance = self._again[False], self._again[True] * (self._workers - 1)
        self._has_common = across >= _IN_COMMON and across > 4 * chance

    def repeated(self, folder: str, is_finite: bool) -> Optional[str]:
        """The place of the dataset's `__iter__` if workers repeat each other's samples, else `None`.

        Workers of an endless dataset that draws its samples by chance need no part of their own. `is_finite` is true if
        an iteration has ended.
        """
        knows = self._may_know or _has_asked(folder, self._number) is not False
        if not self._begin_alike and (not is_finite or (knows and not self._has_common)):
            return None
        try:
            file = inspect.getsourcefile(self._kind.__iter__) or ""
            line = inspect.getsourcelines(self._kind.__iter__)[1]
        except (OSError, TypeError):  # built in, or typed into an interpreter
            return f"{self._kind.__name__}.__iter__"
        return f"{self._kind.__name__}.__iter__, {os.path.basename(file)}:{line}"

    @property
    def _begin_alike(self) -> bool:
        """True if two workers began with the same batch, and the next batch of a worker differs from its first."""
        return len(self._first) > 2 and self._first[0] == self._first[1] != self._first[-1]


def _hashes(batch: Any) -> list[int]:
    """A hash of each sample of a batch, of up to 16 numbers of each tensor. Empty for a batch that is not in host memory."""
    tensors = [tensor for tensor in tensors_in(batch)[:4] if tensor.dim() > 0 and tensor.device.type == "cpu"]
    tensors = [tensor.flatten(1) if tensor.dim() > 1 else tensor[:, None] for tensor in tensors if len(tensor) == len(tensors[0])]
    rows = [tensor[:, :: max(tensor.shape[1] // 16, 1)].tolist() for tensor in tensors]
    return [hash(str(sample)) for sample in zip(*rows)]


def _has_asked(folder: str, number: int) -> Optional[bool]:
    """True if code in a worker of the loader has called `get_worker_info`; `None` if the calls were not watched."""
    answers = []
    for name in os.listdir(folder):
        if name.startswith(f"asks-{number}-"):
            with open(os.path.join(folder, name), "rb") as file:
                answers.append(any(file.read()))
    return any(answers) if answers else None
