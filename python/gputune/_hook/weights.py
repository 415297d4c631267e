"""Converts the weights of trained modules: to bfloat16 throughout, or linear layers to float8 by torchao.

The optimizer needs no change: it holds the same parameters, and makes its state in the new dtype in its first step. Not
yet tested on a GPU.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Callable, Optional

import torch
from torch import nn

from gputune._client import rank_and_ranks
from gputune._hook.patching import map_tensors

#: Values of `torch.precision` that convert weights. Lightning uses the name `bf16-true`.
PURE_BF16, FP8 = "bf16-true", "fp8"

#: The first compute capability with tensor cores for each value. For float8 the PTX ISA requires `sm_89`.
_SINCE = {PURE_BF16: (8, 0), FP8: (8, 9)}

#: torchao converts layers whose sizes are multiples of this (its README of `float8`, "Single GPU User API").
_MULTIPLE = 16


def refusal(value: str, kind: str) -> Optional[str]:
    """The reason why the weights cannot be converted on a device of this kind, else `None`."""
    if value not in _SINCE:
        return None
    if value == FP8 and kind != "cuda":
        return f"fp8 needs an NVIDIA GPU, and the model is on the {kind}"
    since = _SINCE[value]
    if kind == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability() < since:
        return f"{value} needs a GPU of compute capability {since[0]}.{since[1]} or later"
    if value == FP8 and importlib.util.find_spec("torchao") is None:
        return "fp8 needs the package torchao, which is not installed"
    if rank_and_ranks()[1] > 1:
        return f"{value} needs one process: a wrapper of several ranks has already sized its buffers for float32 weights"
    return None


def convert(value: str, module: nn.Module, widened: Callable[..., Any]) -> Optional[str]:
    """Converts a module in place. Returns the reason if it fails. `widened` is a forward hook that returns float32."""
    if value == FP8:
        return _to_float8(module)
    module.to(torch.bfloat16)
    module.register_forward_pre_hook(_narrow, with_kwargs=True)
    module.register_forward_hook(widened)
    return None


def is_float8(modules: list[nn.Module]) -> bool:
    """True if a layer multiplies in float8."""
    return any(type(part).__name__ == "Float8Linear" for module in modules for part in module.modules())


def _to_float8(module: nn.Module) -> Optional[str]:
    try:
        from torchao.float8 import convert_to_float8_training
    except Exception as error:  # torchao is too old, or was built for another torch
        return f"fp8 needs torchao.float8.convert_to_float8_training: {type(error).__name__}: {error}"
    if not any(_is_fit(part, "") for part in module.modules() if part is not module):
        return f"no linear layer within {type(module).__name__} has sizes that are multiples of {_MULTIPLE}, as fp8 needs"
    convert_to_float8_training(module, module_filter_fn=_is_fit)
    return None


def _is_fit(module: nn.Module, name: str) -> bool:
    if not isinstance(module, nn.Linear):
        return False
    return module.in_features % _MULTIPLE == 0 and module.out_features % _MULTIPLE == 0


def _narrow(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Converts the inputs, in training and in evaluation."""
    return map_tensors((args, kwargs), lambda tensor: tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 else tensor)
