"""Counts the samples of a step, from the sampler, the loader's batch size, or the shape of a tensor."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Callable, Iterable, NamedTuple, Optional

import torch
from torch import nn
from torch.utils.data import dataloader as dataloader_module

from gputune import _client
from gputune._hook.batches import samples_in, samples_in_call, tensors_in
from gputune._hook.facts import Facts
from gputune._hook.patching import Function, replace

#: Sources of a count: values of the fact `samples.counted_by`.
SAMPLER = "sampler"
BATCH_SIZE = "batch size"
BATCH = "leading dimension of the batch"
INPUT = "leading dimension of the model's input"

_SIZES = "_gputune_sizes"


class HandedOut(NamedTuple):
    """The number of samples that the sampler chose for one batch."""

    samples: int
    is_exact: bool  # false for an iterable dataset, which may have fewer samples left


class Look(NamedTuple):
    """The leading dimension of a batch, and whether it may count anything other than samples."""

    leading: Optional[int]
    may_be_time: bool  # the first tensor has the dimensions of a sequence
    is_joined: bool  # samples are concatenated: packed tokens, points with a batch vector


def install() -> None:
    """Counts the indices of each batch in the training process, which sends them to a loader's workers."""
    base = dataloader_module._BaseDataLoaderIter
    replace(base, "_next_index", _around_next_index)
    replace(base, "_reset", _around_reset)


def _around_next_index(original: Function) -> Function:
    def _next_index(iterator: Any) -> Any:
        index = original(iterator)
        note(iterator, _handed_out(iterator, index))
        return index

    return _next_index


def _around_reset(original: Function) -> Function:
    def _reset(iterator: Any, *args: Any, **kwargs: Any) -> Any:
        iterator.__dict__.pop(_SIZES, None)  # persistent workers may begin an epoch before the previous epoch is over
        return original(iterator, *args, **kwargs)

    return _reset


def _handed_out(iterator: Any, index: Any) -> Optional[HandedOut]:
    # Without automatic batching only lists and tensors are several indices: any other index is one key, even a tuple.
    is_many = getattr(iterator, "_auto_collation", False) or isinstance(index, (list, torch.Tensor))
    if not is_many:
        return None
    try:
        samples = len(index)
    except TypeError:  # a generator, or one number
        return None
    kind = getattr(iterator, "_dataset_kind", None)
    return HandedOut(samples, kind != dataloader_module._DatasetKind.Iterable)


def note(iterator: Any, handed_out: Optional[HandedOut]) -> None:
    """Keeps a batch's count until the batch arrives; batches arrive in the order of their indices."""
    iterator.__dict__.setdefault(_SIZES, deque()).append(handed_out)


def take(iterator: Any) -> Optional[HandedOut]:
    """The sampler's count for the batch that the iterator gave just now."""
    sizes = iterator.__dict__.get(_SIZES)
    return sizes.popleft() if sizes else None


class BatchCounter:
    """Counts the samples in the batches of one loader."""

    def __init__(self) -> None:
        self.by: Optional[str] = None
        self.look: Optional[Look] = None  # at the first batch
        self.first: Optional[int] = None

    def count(self, iterator: Any, batch: Any, batch_size: Optional[int]) -> Optional[int]:
        """The samples in the batch that the iterator gave just now; `batch_size` is the loader's."""
        handed_out = take(iterator)
        if self.look is None:
            expected = batch_size if handed_out is None else handed_out.samples
            self.look = look_at(batch, expected)
            self.by = self._source(handed_out)
            self.first = self._samples(handed_out, batch, batch_size)
            return self.first
        return self._samples(handed_out, batch, batch_size)

    def _source(self, handed_out: Optional[HandedOut]) -> Optional[str]:
        leading = None if self.look is None else self.look.leading
        if handed_out is not None and (handed_out.is_exact or handed_out.samples != leading):
            return SAMPLER if handed_out.is_exact else BATCH_SIZE
        return None if leading is None else BATCH

    def _samples(self, handed_out: Optional[HandedOut], batch: Any, batch_size: Optional[int]) -> Optional[int]:
        if handed_out is not None and self.by in (SAMPLER, BATCH_SIZE):
            return handed_out.samples
        return samples_in(batch, batch_size)

    @property
    def mismatch(self) -> Optional[str]:
        """A message if the leading dimension of a batch differs from the count, else `None`."""
        leading = None if self.look is None else self.look.leading
        if self.by not in (SAMPLER, BATCH_SIZE) or leading is None or leading == self.first:
            return None
        who = "its sampler handed out" if self.by == SAMPLER else "the loader's batch size is"
        return f"the leading dimension of a batch is {leading}, and {who} {self.first}"


class Skips:
    """Leaves out batches that the script skips, such as after it has caught an out-of-memory error.

    A skipped batch has no backward pass. A script that adds up the losses of several batches also has fewer backward
    passes than batches, but with the same ratio in each step.
    """

    def __init__(self) -> None:
        self._ratio: Optional[float] = None  # batches per backward pass in the first step
        self._are_skipped = False

    def trained(self, sizes: list[int], backwards: int) -> int:
        """The samples of a step that were trained on, from the sizes of its batches."""
        if not backwards or backwards >= len(sizes):
            ratio = 1.0
        else:
            ratio = len(sizes) / backwards
        if self._ratio is None:
            self._ratio = ratio
        self._are_skipped = self._are_skipped or ratio != self._ratio
        if not self._are_skipped or ratio == 1.0:
            return sum(sizes)
        return sizes[-1] if backwards == 1 else round(sum(sizes) / ratio)


class Samples:
    """Counts the samples of steps."""

    def __init__(self) -> None:
        self.modules: Callable[[], Iterable[nn.Module]] = lambda: ()
        self.by: Optional[str] = None
        self.of_last_step: Optional[int] = None
        self.mismatch: Optional[str] = None
        self.inputs: Optional[int] = 0
        """Samples in the inputs of the current step; `None` if one input has no clear number."""
        self._counted: Optional[weakref.ref[nn.Module]] = None  # the first module that the current step called
        self._look: Optional[Look] = None  # at the first input
        self._last: Optional[int] = None  # samples in the last input
        self._is_time_first: Optional[bool] = None

    def add_input(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Counts the samples in a call of a training module.

        A step may give the same samples to several modules, such as an actor and a critic. So only the calls of the
        step's first module count. If another module gets another number, the number is not clear.
        """
        counted = None if self._counted is None else self._counted()
        if counted is None:
            self._counted = weakref.ref(module)
        elif counted is not module:
            if samples_in_call(args, kwargs) != self._last:
                self.inputs = None
            return
        if self._look is None:
            self._look = look_at((args, kwargs))
        self._last = samples_in_call(args, kwargs)
        if self.inputs is not None:
            self.inputs = None if self._last is None else self.inputs + self._last

    def drop_last(self) -> Optional[int]:
        """Drops the last input, on which the script failed. Returns its samples."""
        last, self._last = self._last, None
        if last is not None and self.inputs is not None:
            self.inputs = max(self.inputs - last, 0)
        return last

    def drop(self) -> None:
        """Drops the inputs since the last step, as they belong to no step."""
        self.inputs, self._counted = 0, None

    def of_step(self, samples: Optional[int], counter: Optional[BatchCounter], forwards: int) -> Optional[int]:
        """The samples of the step that ends now: the loader's count, else the inputs' count; `None` if unknown."""
        self.of_last_step = self._count(samples, counter, forwards)
        return self.of_last_step

    def _count(self, samples: Optional[int], counter: Optional[BatchCounter], forwards: int) -> Optional[int]:
        inputs = self.inputs
        self.drop()
        self.by = None
        if samples is not None and counter is not None:
            self.mismatch = counter.mismatch
            if counter.by == BATCH and self._is_doubtful(counter.look):
                return None
            self.by = counter.by
            return samples
        if not forwards or not inputs or self._is_doubtful(self._look):
            return None
        self.by = INPUT
        return inputs

    def _is_doubtful(self, look: Optional[Look]) -> bool:
        """True if a leading dimension may count time steps, tokens or points instead of samples."""
        if look is None or look.is_joined:
            return look is not None
        if self._is_time_first is None:
            self._is_time_first = any(_takes_time_first(module) for module in self.modules())
        return look.may_be_time and self._is_time_first

    def say_facts(self, facts: Facts) -> None:
        """Reports the source of the count, unless the script reports its steps itself."""
        if not _client.user_steps:
            facts.say("samples.counted_by", self.by)
            facts.say("samples.mismatch", self.mismatch)


def _takes_time_first(module: nn.Module) -> bool:
    """True if a recurrent or attention layer takes time as the first dimension, which is torch's default."""
    return any(getattr(inner, "batch_first", None) is False for inner in module.modules())


def look_at(value: Any, expected: Optional[int] = None) -> Look:
    """Examines a batch. Called only for the first batch, as it waits for the values of a batch vector."""
    leading = samples_in(value, expected)
    tensors = tensors_in(value)
    if leading is None or leading == expected or not tensors:
        return Look(leading, False, False)
    first = tensors[0]
    is_packed = leading == 1 and first.dim() > 1 and first.shape[1] > 1 and _is_integer(first)
    is_joined = is_packed or any(_is_batch_vector(tensor, leading) for tensor in tensors)
    return Look(leading, first.dim() in (2, 3), is_joined)


def _is_integer(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _is_batch_vector(tensor: torch.Tensor, leading: int) -> bool:
    """True if a tensor holds the sample number of each point: 0, 0, 0, 1, 1, 2."""
    if tensor.dim() != 1 or tensor.shape[0] != leading or leading < 3 or not _is_integer(tensor):
        return False
    steps = tensor[1:] - tensor[:-1]
    last = int(tensor[-1])
    return int(tensor[0]) == 0 and 0 < last < leading - 1 and bool(((steps == 0) | (steps == 1)).all())
