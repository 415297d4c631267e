"""Queries devices through torch's module for each kind of device, and only after the script has used them.

NVIDIA's and AMD's GPUs have `torch.cuda`, Intel's have `torch.xpu`; other back ends bring their own module.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import torch
from torch import nn

_HOSTS = ("cpu", "meta")


def module_of(device: Optional[torch.device]) -> Any:
    """Torch's module for an asynchronous device with streams and events; `None` for other devices."""
    if device is None or device.type in _HOSTS:
        return None
    module = getattr(torch, device.type, None)
    return module if all(hasattr(module, name) for name in ("Event", "current_stream")) else None


def placed(module: nn.Module) -> nn.Parameter:
    """The parameter that shows a module's device: the first that is not on the CPU, else the first.

    A script may keep some parameters of a module on the CPU, such as embeddings.
    """
    first = next(module.parameters())
    return next((parameter for parameter in module.parameters() if parameter.device.type not in _HOSTS), first)


def is_in_use(kind: str) -> bool:
    """True if this process has used a device of this kind. Does not touch the device."""
    if kind in _HOSTS:
        return True
    is_initialized = getattr(sys.modules.get(f"torch.{kind}"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def any_in_use() -> bool:
    """True if this process has used an asynchronous device."""
    own = getattr(torch._C, "_get_privateuse1_backend_name", lambda: "privateuseone")()
    return any(is_in_use(kind) for kind in ("cuda", "xpu", own))
