"""`torch.checkpoint`: recomputes the activations of repeated blocks in the backward pass instead of keeping them."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gputune._hook.modules import Treatment
from gputune._hook.parts import Hook
from gputune._hook.patching import Function

CHECKPOINT = "torch.checkpoint"


class Checkpointing(Treatment):
    """Uses the model's own method if it exists, as in models of transformers; else wraps each block."""

    def __init__(self, hook: Hook) -> None:
        self._session = hook.session
        self._value = bool(hook.session.value(CHECKPOINT))

    def install(self, hook: Hook) -> None:
        hook.modules.treatments.append(self)

    def prepare(self, module: nn.Module) -> None:
        model = _with_method(module)
        if not self._value:
            if model is not None and getattr(model, "is_gradient_checkpointing", False):
                model.gradient_checkpointing_disable()
            self._session.apply(CHECKPOINT)
        elif model is not None:
            _enable(model)
            self._session.apply(CHECKPOINT)
        else:
            blocks = repeated_blocks(module)
            for block in blocks:
                if not isinstance(vars(block).get("forward"), _Recomputed):
                    block.forward = _Recomputed(block.forward)  # type: ignore[method-assign]
            if blocks:
                self._session.apply(CHECKPOINT)


class _Recomputed(functools.partial):  # type: ignore[type-arg]
    """A block's forward that keeps only its inputs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.func(*args, **kwargs)
        return checkpoint(self.func, *args, use_reentrant=False, **kwargs)


def _with_method(module: nn.Module) -> Any:
    for inner in module.modules():
        if getattr(inner, "supports_gradient_checkpointing", False) and hasattr(inner, "gradient_checkpointing_enable"):
            return inner
    return None


def _enable(model: Any) -> None:
    enable: Function = model.gradient_checkpointing_enable
    takes = inspect.signature(enable).parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers 5 has a new name, but still accepts this one
        if "gradient_checkpointing_kwargs" in takes:
            enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        else:
            enable()


def repeated_blocks(module: nn.Module) -> list[nn.Module]:
    """Children of a ModuleList or Sequential that share their class, contain layers, and have no batch norm.

    Batch norm would update its statistics twice. A single layer keeps little more than its input.
    """
    blocks: list[nn.Module] = []
    for parent in module.modules():
        if any(parent in block.modules() for block in blocks) or not isinstance(parent, (nn.ModuleList, nn.Sequential)):
            continue
        children = list(parent.children())
        kinds = [type(child) for child in children]
        blocks += [child for child in children if kinds.count(type(child)) > 1 and _is_block(child)]
    return blocks


def _is_block(module: nn.Module) -> bool:
    if not any(True for _ in module.children()) or not any(True for _ in module.parameters()):
        return False
    return not any(isinstance(inner, nn.modules.batchnorm._BatchNorm) for inner in module.modules())
