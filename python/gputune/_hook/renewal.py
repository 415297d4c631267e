"""Replaces the iterator that a script is using if settings of its loader change.

The script keeps its own iterator, which passes on the batches of a new iterator. The sampler continues at its position.
Batches that the old workers had loaded in advance are dropped.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterable, Iterator, Optional

from torch.utils.data import BatchSampler
from torch.utils.data import dataloader as dataloader_module

from gputune._hook.patching import Function, replace
from gputune._hook.replaying import stop_workers
from gputune._hook.session import CannotChange

#: Attributes: an iterator's successor, and a loader's remaining indices for its next iterator.
_SUCCESSOR = "_gputune_successor"
_REST = "_gputune_rest"
#: Attribute: true if an iterator is exhausted.
_OVER = "_gputune_over"


def install() -> None:
    """Makes new iterators use the remaining indices. Iterators with workers request batches during construction."""
    replace(dataloader_module._BaseDataLoaderIter, "_reset", _around_reset)


def _around_reset(original: Function) -> Function:
    def _reset(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(iterator, loader, *args, **kwargs)
        rest = loader.__dict__.pop(_REST, None)
        if rest is not None:
            iterator._sampler_iter = rest
        return done

    return _reset


def new_iterator(loader: Any) -> Any:
    """Creates an iterator of a loader without the hook's wrapper, so that the hook does not count an epoch."""
    begin = type(loader)._get_iterator
    return getattr(begin, "__wrapped__", begin)(loader)


def source_of(iterator: Any) -> Any:
    """The iterator that gives the batches: the successor, else the iterator itself."""
    return iterator.__dict__.get(_SUCCESSOR, iterator)


def note_end(iterator: Any) -> None:
    """Notes that an iterator has no more batches."""
    iterator.__dict__[_OVER] = True


def reopen(iterator: Any) -> None:
    """Notes that an iterator begins; with persistent workers the same iterator begins each epoch."""
    iterator.__dict__.pop(_OVER, None)


def under_way(iterators: Iterable[Any]) -> Any:
    """The iterator that a script is using; `None` between two epochs."""
    found = [iterator for iterator in iterators if not iterator.__dict__.get(_OVER)]
    if len(found) > 1:
        raise CannotChange("the script goes through its DataLoader several times at once")
    return found[0] if found else None


def begin(iterator: Any) -> Any:
    """Ends the workers of an iterator before its loader is changed. Returns the remaining indices of its sampler."""
    if iterator is None:
        return None
    if not isinstance(iterator, dataloader_module._BaseDataLoaderIter):
        raise CannotChange(f"{type(iterator).__name__} is no iterator of torch")
    source = source_of(iterator)
    stop_workers(source)
    return source._sampler_iter


def finish(iterator: Any, loader: Any, rest: Any, is_same_size: bool) -> None:
    """Makes the successor of an iterator after its loader was changed."""
    loader.__dict__.pop(_REST, None)
    if not is_same_size:
        rest = _resized(rest, loader)
    if rest is not None:
        loader.__dict__[_REST] = rest
    successor = new_iterator(loader)
    if loader.__dict__.pop(_REST, None) is not None:  # torch calls `_reset` only for iterators with workers
        successor._sampler_iter = rest
    iterator.__dict__[_SUCCESSOR] = successor
    if loader.persistent_workers and loader.num_workers > 0:
        loader._iterator = successor


def _resized(rest: Any, loader: Any) -> Optional[Iterator[list[Any]]]:
    """The remaining indices in batches of the new size; `None` if the batch sampler is not torch's own."""
    sampler = loader.batch_sampler
    if type(sampler) is not BatchSampler:
        return None
    return _batches(itertools.chain.from_iterable(rest), sampler.batch_size, sampler.drop_last)


def _batches(indices: Iterator[Any], size: int, drops_last: bool) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(indices, size)):
        if len(batch) == size or not drops_last:
            yield batch
