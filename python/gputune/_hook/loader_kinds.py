"""Subclasses of DataLoader that do not go by its own methods, such as torchdata's StatefulDataLoader."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any, Callable

from torch.utils.data import DataLoader

from gputune._hook.patching import Function, replace


def watch(around: dict[str, Callable[[Function], Function]]) -> None:
    """Wraps these methods where a subclass does without DataLoader's, now and when one is defined later."""

    def look(kind: type) -> None:
        for name, make in around.items():
            method = vars(kind).get(name)
            if isinstance(method, FunctionType) and _does_without(method, name):
                replace(kind, name, make)

    def init_subclass(kind: Any, **kwargs: Any) -> None:
        super(DataLoader, kind).__init_subclass__(**kwargs)
        look(kind)

    for kind in _subclasses(DataLoader):
        look(kind)
    DataLoader.__init_subclass__ = classmethod(init_subclass)  # type: ignore[assignment]


def _does_without(method: FunctionType, name: str) -> bool:
    """Whether a method never calls the one that it overrides, as far as its code tells. Generators look at batches."""
    code = inspect.unwrap(method).__code__
    return "super" not in code.co_names and name not in code.co_names and not inspect.isgeneratorfunction(method)


def _subclasses(kind: type) -> set[type]:
    return {inner for child in kind.__subclasses__() for inner in {child, *_subclasses(child)}}
