"""Wraps methods of DataLoader's subclasses that do not call DataLoader's method, as torchdata's StatefulDataLoader."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any, Callable

from torch.utils.data import DataLoader

from gputune._hook.patching import Function, replace


def watch(around: dict[str, Callable[[Function], Function]]) -> None:
    """Wraps the methods with these names in present and future subclasses. `around` has the wrapper of each method."""

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
    """True if a method's code does not call the overridden method.

    False for generator functions, which yield the batches themselves.
    """
    code = inspect.unwrap(method).__code__
    return "super" not in code.co_names and name not in code.co_names and not inspect.isgeneratorfunction(method)


def _subclasses(kind: type) -> set[type]:
    return {inner for child in kind.__subclasses__() for inner in {child, *_subclasses(child)}}
