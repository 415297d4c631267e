"""Replaces functions of torch by wrappers of them."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

import torch

Function = Callable[..., Any]
Item = TypeVar("Item")

#: Major and minor version of torch.
VERSION: tuple[int, int] = tuple(int(part) for part in torch.__version__.split(".")[:2])  # type: ignore[assignment]


def replace(owner: Any, name: str, make: Callable[[Function], Function]) -> Function:
    """Puts `make(original)` in the place of `owner.name`; returns the original."""
    original: Function = getattr(owner, name)
    setattr(owner, name, functools.update_wrapper(make(original), original))
    return original


def _never() -> bool:
    return False


#: Whether `torch.compile` is tracing the code that asks: it must see torch as it is.
is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", _never)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with its tensors changed, through tuples, lists and dicts; other containers stay as they are."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, dict):
        changed = {key: map_tensors(item, change) for key, item in value.items()}
        if type(value) is dict:
            return changed
        for key, item in changed.items():  # such as the outputs of transformers, which are both dict and object
            value[key] = item
    return value
