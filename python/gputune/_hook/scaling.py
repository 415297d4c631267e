"""Loss scaling for fp16 if the script has none: calls `torch.amp.GradScaler` at the places where a script would."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Iterable, Optional

import torch
from torch import nn
from torch.nn.utils import clip_grad

from gputune._hook import importing
from gputune._hook.backward import scaler_classes
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace

_CAPTURED = (
    "a CUDA graph is captured, whose replays would scale by what was right before; give the script a GradScaler, which is "
    "used outside the graph"
)


class LossScaling:
    """Scales the loss before `backward`, and unscales the gradients before they are clipped or used."""

    def __init__(self, hook: Hook, target: str) -> None:
        self._hook = hook
        self._target = target
        self._scaler: Optional[Any] = None
        self._kind = ""  # device kind of the scaler
        self._is_needed = True
        self._unscaled: set[int] = set()  # ids of the optimizers whose gradients were unscaled since the last update

    def install(self) -> None:
        self._hook.backward.scale.append(self._scale)
        self._hook.optimizers.before_step.append(self._before_step)
        self._hook.optimizers.after_step.append(self._after_step)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            replace(clip_grad, name, self._around_clip)
            setattr(torch.nn.utils, name, getattr(clip_grad, name))
        for name in ("get_total_norm", "clip_grads_with_norm_"):  # since torch 2.6
            if hasattr(torch.nn.utils, name):
                replace(torch.nn.utils, name, self._around_clip)
        importing.after("torch.distributed.fsdp", self._patch_fsdp1)

    def _patch_fsdp1(self, module: Any) -> None:
        kind = getattr(module, "FullyShardedDataParallel", None)
        if kind is not None:
            replace(kind, "clip_grad_norm_", self._around_clip_of_module)

    def _scale(self, loss: torch.Tensor, is_scaled: bool) -> torch.Tensor:
        if is_scaled:
            self._is_needed = False
        if not self._is_needed:
            return loss
        if self._hook.phases.clock.is_capturing():
            self._hook.session.reject(self._target, _CAPTURED)
            self._is_needed = False
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
        """Makes the step change nothing if gradients overflowed. The next `_scale` lowers the scale.

        Fused optimizers check for overflow on the device. For other optimizers the host waits for the check, as with
        torch's own scaler, and removes the gradients.
        """
        if self._scaler is None or not self._is_needed:
            return
        self._unscale(optimizer)
        found = list(self._scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())
        if found and _checks_overflow(optimizer):
            optimizer.grad_scale = None  # gradients are already unscaled
            optimizer.found_inf = sum(is_infinite.to(found[0].device, non_blocking=True) for is_infinite in found)
        elif any(bool(is_infinite) for is_infinite in found):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None

    def _after_step(self, optimizer: Any) -> None:
        if self._scaler is not None and self._is_needed:
            for name in ("grad_scale", "found_inf"):
                vars(optimizer).pop(name, None)

    def _unscale(self, optimizer: Any) -> None:
        gradients = (p.grad for group in optimizer.param_groups for p in group["params"])
        if id(optimizer) not in self._unscaled and any(gradient is not None for gradient in gradients):
            self._unscaled.add(id(optimizer))
            self._scaler.unscale_(optimizer)  # type: ignore[union-attr]

    def _around_clip(self, original: Function) -> Function:
        """Wraps clip functions, which take parameters or gradients."""

        def clip(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._scaler is None or not self._is_needed:
                return original(tensors, *args, **kwargs)
            clipped = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            self._unscale_for(clipped)
            return original(clipped, *args, **kwargs)

        return clip

    def _around_clip_of_module(self, original: Function) -> Function:
        def clip_grad_norm_(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._scaler is not None and self._is_needed:
                self._unscale_for(module.parameters())
            return original(module, *args, **kwargs)

        return clip_grad_norm_

    def _unscale_for(self, tensors: Iterable[torch.Tensor]) -> None:
        keys = {id(tensor) for tensor in tensors}
        for optimizer in self._hook.optimizers.alive:
            parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
            if any(id(parameter) in keys or id(parameter.grad) in keys for parameter in parameters):
                self._unscale(optimizer)


def _checks_overflow(optimizer: Any) -> bool:
    """True if the optimizer skips a step if its attribute `found_inf` is set (fused optimizers, since torch 2.0)."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        return False
    return "grad_scaler" not in inspect.signature(optimizer.step).parameters  # in older versions `step` gets the scaler


def _new_scaler(device: str, modules: list[nn.Module]) -> Any:
    """A scaler for the modules.

    Sharded modules need the scaler of FSDP: each rank sees only some gradients, but all ranks must skip the same steps.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    inner = (part for module in modules for part in module.modules())
    if fsdp is not None and any(isinstance(part, fsdp.FullyShardedDataParallel) for part in inner):
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        takes_device = "device" in inspect.signature(ShardedGradScaler).parameters  # since torch 2.3
        return ShardedGradScaler(process_group=torch.distributed.group.WORLD, **({"device": device} if takes_device else {}))
    (kind,) = scaler_classes()
    return kind(device) if kind is getattr(torch.amp, "GradScaler", None) else kind()
