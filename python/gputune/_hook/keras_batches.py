"""Counts the samples in the batches of a call of Keras's `fit`."""

from __future__ import annotations

import functools
import math
import types
from collections import deque
from typing import Any, Iterator, Optional

from gputune._client import Reporter

#: Batch size of `fit` for arrays, if neither `batch_size` nor `steps_per_epoch` is given (`ArrayDataAdapter`).
_USUAL = 32

#: Parts of the class names of tf.data's datasets whose batches differ from those of the dataset that they read.
_REBATCHING = ("Unbatch", "Rebatch", "FlatMap", "Interleave", "Window", "Zip", "Sampl")

_SIZE = "_gputune_size"


class Batches:
    """The batches of one call of `fit`, described by the arguments of the call."""

    def __init__(self, arguments: dict[str, Any], data_kind: Any) -> None:
        self._arguments = arguments
        self._handed_out: Optional[deque[Optional[int]]] = None  # sizes of the batches that a generator gave
        self._size: Optional[int] = None
        self._total: Optional[int] = None
        data = arguments.get("x")
        self.kind = type(data).__name__
        arrays = _leaves(data)
        self.is_sized = bool(arrays) and all(getattr(array, "shape", None) is not None for array in arrays)
        """True if `fit` makes the batches from arrays, in the size of its argument `batch_size`."""
        if self.is_sized:
            self._total = _training_part(arguments, int(arrays[0].shape[0]))
        elif isinstance(data, types.GeneratorType):
            self._handed_out = deque()
            arguments["x"] = self._watched(data, self._handed_out)
        elif isinstance(data, data_kind):
            _watch(type(data))
        elif hasattr(data, "element_spec"):
            self.kind, self._size = "tf.data.Dataset", _of_dataset(data)
        else:
            size = getattr(data, "batch_size", None)  # torch's DataLoader
            self._size = size if isinstance(size, int) else None

    @property
    def size(self) -> Optional[int]:
        """The samples in a full batch; `None` if unknown."""
        if self._total is not None:
            steps = self._arguments.get("steps_per_epoch")
            return self._arguments.get("batch_size") or (math.ceil(self._total / steps) if steps else _USUAL)
        if self._size is None:
            self._size = getattr(self._arguments.get("x"), _SIZE, None)
        return self._size

    @property
    def of_an_epoch(self) -> Optional[int]:
        """The samples of an epoch; `None` if unknown."""
        steps = self._arguments.get("steps_per_epoch")
        if self._total is not None and not steps:
            return self._total
        return int(self.size * steps) if self.size and steps else None

    @property
    def counted_by(self) -> Optional[str]:
        """The source of the count, as a value of the fact `samples.counted_by`."""
        if self.size is None:
            return None
        return "leading dimension of the batch" if self._handed_out is not None else "batch size"

    def samples(self, first: int, steps: int) -> Optional[int]:
        """The samples of `steps` steps of an epoch from the step `first` on; `None` if unknown."""
        if self._handed_out is not None:
            sizes = [self._handed_out.popleft() for _ in range(min(steps, len(self._handed_out)))]
            return None if None in sizes else sum(size or 0 for size in sizes)
        size = self.size
        if size is None:
            return None
        if self._total is None or self._arguments.get("steps_per_epoch"):
            return size * steps
        return max(min(self._total - size * first, size * steps), 0)

    def _watched(self, data: Iterator[Any], handed_out: deque[Optional[int]]) -> Iterator[Any]:
        for batch in data:
            size = _leading(batch)
            self._size = self._size or size
            handed_out.append(size)
            yield batch


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _leading(batch: Any) -> Optional[int]:
    """The leading dimension of the first array in a batch."""
    for leaf in _leaves(batch):
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape):
            return None if shape[0] is None else int(shape[0])
    return None


def _training_part(arguments: dict[str, Any], samples: int) -> int:
    """The samples that `validation_split` leaves for training (`train_validation_split`)."""
    split = arguments.get("validation_split")
    if not split or arguments.get("validation_data") is not None:
        return samples
    return math.floor(samples * (1.0 - float(split)))


def _of_dataset(dataset: Any) -> Optional[int]:
    """The batch size of a `tf.data.Dataset`, from its shapes or from the step of its pipeline that makes batches.

    `None` if a later step of the pipeline changes the batches.
    """
    size = _leading(dataset.element_spec)
    while size is None and dataset is not None:
        batch_size = getattr(dataset, "_batch_size", None)
        size = None if batch_size is None else int(batch_size)
        if any(part in type(dataset).__name__ for part in _REBATCHING):
            return None
        dataset = getattr(dataset, "_input_dataset", None)
    return size


def _watch(kind: Any) -> None:
    """Makes each `PyDataset` of this class note the size of the first batch that it gives in this process."""
    original = kind.__getitem__
    if hasattr(original, _SIZE):
        return

    @functools.wraps(original)
    def __getitem__(dataset: Any, index: Any) -> Any:
        batch = original(dataset, index)
        if _SIZE not in dataset.__dict__ and Reporter.hooked() is not None:
            setattr(dataset, _SIZE, _leading(batch))
        return batch

    setattr(__getitem__, _SIZE, True)
    kind.__getitem__ = __getitem__
