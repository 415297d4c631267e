"""Subclasses of DataLoader that do not call its methods, such as torchdata's StatefulDataLoader."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any, Callable

from torch.utils.data import DataLoader

from gputune._hook.patching import Function, replace


def watch(around: dict[str, Callable[[Function], Function]]) -> None:
    """Wraps these methods in present and future subclasses that do not call DataLoader's methods."""

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
    """True if a method's code shows no call of the overridden method. Generators are excluded: they handle batches."""
    code = inspect.unwrap(method).__code__
    return "super" not in code.co_names and name not in code.co_names and not inspect.isgeneratorfunction(method)


def _subclasses(kind: type) -> set[type]:
    return {inner for child in kind.__subclasses__() for inner in {child, *_subclasses(child)}}
