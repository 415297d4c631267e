"""Loss scaling for fp16 where the script has none: what `torch.amp.GradScaler` does, at the places where it belongs."""

from __future__ import annotations

import sys
from typing import Any, Optional

import torch
from torch import nn
from torch.nn.utils import clip_grad

from gputune._hook.backward import scaler_classes
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace


class LossScaling:
    """Scales the loss before `backward`, and the gradients back before they are clipped or used."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._scaler: Optional[Any] = None
        self._kind = ""  # of device that it is for
        self._is_needed = True
        self._unscaled: set[int] = set()  # optimizers, since the last update

    def install(self) -> None:
        self._hook.backward.scale.append(self._scale)
        self._hook.optimizers.before_step.append(self._before_step)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            replace(clip_grad, name, self._around_clip)
            setattr(torch.nn.utils, name, getattr(clip_grad, name))

    def _scale(self, loss: torch.Tensor, is_scaled: bool) -> torch.Tensor:
        if is_scaled:
            self._is_needed = False
        if not self._is_needed:
            return loss
        kind = loss.device.type
        if self._scaler is None or self._kind != kind:
            self._scaler, self._kind = _new_scaler(kind, self._hook.modules.found), kind
            self._unscaled.clear()
        if self._unscaled:
            self._scaler.update()
            self._unscaled.clear()
        scaled: torch.Tensor = self._scaler.scale(loss)
        return scaled

    def _before_step(self, optimizer: Any) -> None:
        """Gradients that overflowed are dropped, and the scale falls: the step changes nothing."""
        if self._scaler is None or not self._is_needed:
            return
        self._unscale(optimizer)
        found = self._scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        if any(bool(is_infinite) for is_infinite in found.values()):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None

    def _unscale(self, optimizer: Any) -> None:
        gradients = (p.grad for group in optimizer.param_groups for p in group["params"])
        if id(optimizer) not in self._unscaled and any(gradient is not None for gradient in gradients):
            self._unscaled.add(id(optimizer))
            self._scaler.unscale_(optimizer)  # type: ignore[union-attr]

    def _around_clip(self, original: Function) -> Function:
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if self._scaler is None or not self._is_needed:
                return original(parameters, *args, **kwargs)
            clipped = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            keys = {id(parameter) for parameter in clipped}
            for optimizer in self._hook.optimizers.alive:
                if any(id(p) in keys for group in optimizer.param_groups for p in group["params"]):
                    self._unscale(optimizer)
            return original(clipped, *args, **kwargs)

        return clip


def _new_scaler(device: str, modules: list[nn.Module]) -> Any:
    """For sharded modules that of FSDP: each rank sees a part of the gradients, and all must leave out the same steps."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and any(isinstance(module, fsdp.FullyShardedDataParallel) for module in modules):
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        return ShardedGradScaler(process_group=torch.distributed.group.WORLD)
    (kind,) = scaler_classes()
    return kind(device) if kind is getattr(torch.amp, "GradScaler", None) else kind()
