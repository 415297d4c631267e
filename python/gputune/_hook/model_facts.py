"""Facts about the training that cost nothing to read: precision, model, optimizer and attention."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any, Optional

import torch
from torch import nn
from torch.nn import functional

from gputune._hook.patching import Function, replace
from gputune._hook.weights import is_float8

_PRECISIONS = {torch.bfloat16: "bf16", torch.float16: "fp16"}
_SDPA = "scaled_dot_product_attention"


class Autocast:
    """The dtype of the last autocast region that was entered in training."""

    def __init__(self) -> None:
        self.dtype: dict[str, Any] = {}

    def install(self) -> None:
        replace(torch.autocast, "__enter__", self._around_enter)

    def _around_enter(self, original: Function) -> Function:
        def __enter__(region: Any) -> Any:
            entered = original(region)
            if torch.is_grad_enabled():
                self.dtype[region.device] = region.fast_dtype if region._enabled else None
            return entered

        return __enter__


def precision(device: str, modules: Iterable[nn.Module], autocast: Autocast) -> str:
    """The precision of matrix products in the trained modules."""
    if is_float8(list(modules)):
        return "fp8"
    found = _PRECISIONS.get(autocast.dtype.get(device))
    if found is not None:
        return found
    for module in modules:
        for parameter in module.parameters():
            if parameter.dtype in _PRECISIONS:
                return _PRECISIONS[parameter.dtype]
    return "tf32" if device == "cuda" and _is_tf32() else "fp32"


def _is_tf32() -> bool:
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # torch 2.9 and later, if the script has set the newer switch
        return str(torch.backends.cuda.matmul.fp32_precision) == "tf32"


def is_tf32_in_convolutions() -> bool:
    """True if cuDNN may use TF32, which is torch's default."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # torch 2.9 and later, if the script has set the newer switch
        return str(torch.backends.cudnn.conv.fp32_precision) == "tf32"


def parameters(modules: Iterable[nn.Module]) -> int:
    seen = {id(parameter): parameter.numel() for module in modules for parameter in module.parameters()}
    return sum(seen.values())


def has_images(modules: Iterable[nn.Module]) -> bool:
    """True if a parameter has four dimensions (a 2D convolution), so the memory format channels last can affect it."""
    return any(parameter.dim() == 4 for module in modules for parameter in module.parameters())


class BatchNorm:
    """Learns whether training fails on a batch of one sample: batch normalisation needs two values for each channel."""

    def __init__(self) -> None:
        self.needs_two_samples = False

    def install(self) -> None:
        if hasattr(functional, "_verify_batch_size"):
            replace(functional, "_verify_batch_size", self._around)

    def _around(self, original: Function) -> Function:
        def _verify_batch_size(size: Any) -> None:
            self.needs_two_samples = self.needs_two_samples or math.prod(size[2:]) == 1
            original(size)

        return _verify_batch_size


def is_compiled(modules: Iterable[nn.Module]) -> bool:
    """True if `torch.compile` has compiled a graph, or wraps a module that it will compile."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0:
        return True
    return any(type(inner).__name__ == "OptimizedModule" for module in modules for inner in module.modules())


def is_fused(optimizer: Any) -> bool:
    """True if the optimizer was made with `fused=True`, or has `fused` in the name of its class."""
    groups = getattr(optimizer, "param_groups", [])
    return any(group.get("fused") for group in groups) or "fused" in type(optimizer).__name__.lower()


def flash_attention(device: str, modules: Iterable[nn.Module]) -> Optional[str]:
    """`yes` if attention may use a flash kernel, by `scaled_dot_product_attention` or a flash library; else `no`.

    `None` without attention. Runs nothing: it looks up the names that the code of each `forward` uses.
    """
    kinds = {type(inner) for module in modules for inner in module.modules()}
    attention = [kind for kind in kinds if "attention" in kind.__name__.lower() or _calls(kind, _SDPA)]
    if not attention:
        return None
    configs = (getattr(inner, "config", None) for module in modules for inner in module.modules())
    chosen = {getattr(config, "_attn_implementation", None) for config in configs} - {None}
    if chosen:  # a model of Hugging Face transformers
        is_flash = any(name == "sdpa" or "flash" in str(name) or "flex" in str(name) for name in chosen)
    else:
        is_flash = any(_calls(kind, _SDPA) or "flash" in kind.__name__.lower() for kind in attention)
        is_flash = is_flash or (nn.MultiheadAttention in kinds and hasattr(nn.functional, _SDPA))
    if device == "cuda" and hasattr(torch.backends.cuda, "flash_sdp_enabled"):
        is_flash = is_flash and torch.backends.cuda.flash_sdp_enabled()
    return "yes" if is_flash else "no"


def _calls(kind: type, name: str) -> bool:
    code = getattr(getattr(kind, "forward", None), "__code__", None)
    return code is not None and name in code.co_names
