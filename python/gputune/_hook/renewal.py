"""Another iterator in the place of the one that a script goes through, with other workers or batches of another size.

The script keeps its own iterator, which hands on what its successor gives; and the sampler goes on where it was. Batches
that the old workers had loaded in advance are dropped.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterable, Iterator, Optional

from torch.utils.data import BatchSampler
from torch.utils.data import dataloader as dataloader_module

from gputune._hook.patching import Function, replace
from gputune._hook.replaying import stop_workers
from gputune._hook.session import CannotChange

#: Where an iterator keeps its successor, and a loader what the sampler of its next iterator is to go on with.
_SUCCESSOR = "_gputune_successor"
_REST = "_gputune_rest"
#: Whether an iterator is at its end.
_OVER = "_gputune_over"


def install() -> None:
    """Has iterators go on with what is left to them. Those with workers ask for batches while they are made."""
    replace(dataloader_module._BaseDataLoaderIter, "_reset", _around_reset)


def _around_reset(original: Function) -> Function:
    def _reset(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(iterator, loader, *args, **kwargs)
        rest = loader.__dict__.pop(_REST, None)
        if rest is not None:
            iterator._sampler_iter = rest
        return done

    return _reset


def source_of(iterator: Any) -> Any:
    """The iterator that gives the batches: its successor, where it has one."""
    return iterator.__dict__.get(_SUCCESSOR, iterator)


def note_end(iterator: Any) -> None:
    """An iterator has no more batches."""
    iterator.__dict__[_OVER] = True


def reopen(iterator: Any) -> None:
    """An iterator begins; one with persistent workers does so again and again."""
    iterator.__dict__.pop(_OVER, None)


def under_way(iterators: Iterable[Any]) -> Any:
    """The one iterator of a loader that a script is going through; nothing between two epochs."""
    found = [iterator for iterator in iterators if not iterator.__dict__.get(_OVER)]
    if len(found) > 1:
        raise CannotChange("the script goes through its DataLoader several times at once")
    return found[0] if found else None


def begin(iterator: Any) -> Any:
    """Ends the workers of an iterator, before its loader is changed; returns what its sampler has yet to hand out."""
    if iterator is None:
        return None
    if not isinstance(iterator, dataloader_module._BaseDataLoaderIter):
        raise CannotChange(f"{type(iterator).__name__} is no iterator of torch")
    source = source_of(iterator)
    stop_workers(source)
    return source._sampler_iter


def finish(iterator: Any, loader: Any, rest: Any, is_same_size: bool) -> None:
    """Makes the successor of an iterator, once its loader is changed."""
    loader.__dict__.pop(_REST, None)
    if not is_same_size:
        rest = _resized(rest, loader)
    if rest is not None:
        loader.__dict__[_REST] = rest
    successor = loader._get_iterator()
    if loader.__dict__.pop(_REST, None) is not None:  # one without workers takes its first batch later
        successor._sampler_iter = rest
    iterator.__dict__[_SUCCESSOR] = successor
    if loader.persistent_workers and loader.num_workers > 0:
        loader._iterator = successor


def _resized(rest: Any, loader: Any) -> Optional[Iterator[list[Any]]]:
    """The same indices in batches of the new size; nothing where a sampler of another kind has its own way to batches."""
    sampler = loader.batch_sampler
    if type(sampler) is not BatchSampler:
        return None
    return _batches(itertools.chain.from_iterable(rest), sampler.batch_size, sampler.drop_last)


def _batches(indices: Iterator[Any], size: int, drops_last: bool) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(indices, size)):
        if len(batch) == size or not drops_last:
            yield batch
