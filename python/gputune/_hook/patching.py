"""Replaces functions of torch by wrappers."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, TypeVar

import torch

Function = Callable[..., Any]
Item = TypeVar("Item")

#: Major and minor version of torch.
VERSION: tuple[int, int] = tuple(int(part) for part in torch.__version__.split(".")[:2])  # type: ignore[assignment]


class TensorMethod:
    """A wrapped method of `torch.Tensor` that compares equal to the original.

    Torch passes the wrapped method, such as `torch.Tensor.to`, to `__torch_function__` of tensor subclasses. Subclasses
    search for it among the original methods. Only if they find it, torchvision's tensors keep their type, and
    uninitialized parameters allow the call.
    """

    def __init__(self, function: Function, original: Function) -> None:
        self._function = function
        self._original = original
        functools.update_wrapper(self, original)

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        return self if tensor is None else types.MethodType(self._function, tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __hash__(self) -> int:
        return hash(self._original)

    def __eq__(self, other: Any) -> bool:
        return self is other or bool(self._original == (other._original if isinstance(other, TensorMethod) else other))


def replace(owner: Any, name: str, make: Callable[[Function], Function]) -> Function:
    """Replaces `owner.name` by `make(original)`. Returns the original."""
    original: Function = getattr(owner, name)
    made = functools.update_wrapper(make(original), original)
    setattr(owner, name, TensorMethod(made, original) if owner is torch.Tensor else made)
    return original


def _never() -> bool:
    return False


#: Returns true while `torch.compile` traces the calling code, which must see the original torch.
is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", _never)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with its tensors changed, inside tuples, lists and dicts. Changes a subclass of dict in place."""
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
        for key, item in changed.items():  # such as outputs of transformers, which are also attributes
            value[key] = item
    return value
