"""What is asked of a device: only once the script has used it, and through torch's module for its kind.

`torch.cuda` is that of NVIDIA's and AMD's GPUs, `torch.xpu` that of Intel's; other back ends bring their own.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import torch
from torch import nn

_HOSTS = ("cpu", "meta")


def module_of(device: Optional[torch.device]) -> Any:
    """Torch's module for a device that works beside the host, in streams that events are put into; nothing for others."""
    if device is None or device.type in _HOSTS:
        return None
    module = getattr(torch, device.type, None)
    return module if all(hasattr(module, name) for name in ("Event", "current_stream")) else None


def placed(module: nn.Module) -> nn.Parameter:
    """The parameter that says where a module is: the first on a device, as embeddings may stay on the host, or the first."""
    first = next(module.parameters())
    return next((parameter for parameter in module.parameters() if parameter.device.type not in _HOSTS), first)


def is_in_use(kind: str) -> bool:
    """Whether this process has used a device of this kind. The device is not asked."""
    if kind in _HOSTS:
        return True
    is_initialized = getattr(sys.modules.get(f"torch.{kind}"), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def any_in_use() -> bool:
    """Whether this process has used a device that works beside the host."""
    own = getattr(torch._C, "_get_privateuse1_backend_name", lambda: "privateuseone")()
    return any(is_in_use(kind) for kind in ("cuda", "xpu", own))
