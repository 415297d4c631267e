"""`torch.grad_accumulation`: computes the same step from several smaller batches."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any, Optional

import torch
from torch import nn
from torch.nn.utils import clip_grad
from torch.optim import Optimizer

from gputune._hook.loader_settings import ACCUMULATION
from gputune._hook.modules import Treatment
from gputune._hook.own_gradients import OwnGradients
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace

#: Trainers that accumulate themselves, and their settings. The first match counts, as the trainer of transformers also
#: uses Accelerate.
_TRAINERS = {
    "pytorch_lightning.": "Trainer(accumulate_grad_batches=...)",
    "lightning.": "Trainer(accumulate_grad_batches=...)",
    "transformers.trainer": "TrainingArguments(gradient_accumulation_steps=...)",
    "accelerate.": "Accelerator(gradient_accumulation_steps=...)",
}


class Accumulation(Treatment):
    """Splits a step into parts, and lets the optimizer step only after the last part.

    The loader gives a smaller batch for each part, and each loss is divided by the number of parts.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._session = hook.session
        self._parts: int = hook.session.value(ACCUMULATION)
        self._done = 0  # parts since the last step
        self._optimizer: Optional[int] = None  # id of the optimizer that steps
        self._has_checked_trainers = False
        # A parameter with a gradient. If its gradient is gone in the next part, the script has cleared the gradients.
        self._kept_parameter: Optional[torch.Tensor] = None
        self._own_gradients = OwnGradients(hook.session)
        self._parts_since_call: dict[int, int] = {}  # by the id of the learning-rate scheduler that is called

    def install(self) -> None:
        if self._parts <= 1:
            # One part changes nothing, so it counts as applied. A live process may get more parts later.
            self._hook.steps.checks.append(lambda: self._session.apply(ACCUMULATION))
            if not self._hook.is_live:
                return
        self._hook.changes[ACCUMULATION] = self._change
        self._hook.modules.treatments.append(self)
        self._hook.backward.scale.append(self._scale)
        self._hook.backward.after.append(self._keep_gradients)
        self._own_gradients.install()
        self._hook.optimizers.may_step = self._may_step
        for owner in (Optimizer, nn.Module):
            replace(owner, "zero_grad", self._around_zero_grad)
        replace(clip_grad, "clip_grad_norm_", self._around_clip_norm)
        replace(clip_grad, "clip_grad_value_", self._around_clip_value)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            setattr(nn.utils, name, getattr(clip_grad, name))
        if hasattr(nn.utils, "clip_grads_with_norm_"):  # since torch 2.6
            replace(nn.utils, "clip_grads_with_norm_", self._around_clip_value)
        schedulers = torch.optim.lr_scheduler
        base = getattr(schedulers, "LRScheduler", schedulers._LRScheduler)
        for kind in {base, *_subclasses(base)}:
            if "step" in vars(kind):
                replace(kind, "step", self._around_scheduler)

    def _change(self, parts: Optional[int]) -> None:
        """Changes the number of parts between two steps. Loaders give parts from their next batch on."""
        self._parts = parts = parts or 1
        self._kept_parameter = None
        self._parts_since_call = dict.fromkeys(self._parts_since_call, 0)
        if parts <= 1:
            self._session.apply(ACCUMULATION)
        for module in self._hook.modules.found:
            self.prepare(module)

    def prepare(self, module: nn.Module) -> None:
        if self._parts > 1 and any(isinstance(inner, nn.modules.batchnorm._BatchNorm) for inner in module.modules()):
            self._refuse("the model has batch normalisation, whose statistics depend on the size of the parts")

    def surround(self, stack: ExitStack) -> None:
        """Makes ranks exchange their gradients only with the last part."""
        for module in self._hook.modules.found:
            if isinstance(module, nn.parallel.DistributedDataParallel) and not self._is_last():
                stack.enter_context(module.no_sync())

    def _is_last(self) -> bool:
        return self._done == self._parts - 1

    def _refuse(self, reason: str) -> None:
        self._session.reject(ACCUMULATION, reason)
        self._parts = 1
        self._done = 0

    def _scale(self, loss: torch.Tensor, is_scaled: bool) -> torch.Tensor:
        if self._parts <= 1:
            return loss
        if is_scaled:
            self._refuse("the script has a GradScaler, which scales the gradients back with each part")
        if not self._has_checked_trainers:
            self._has_checked_trainers = True
            self._refuse_trainers()
        if self._done > 0 and self._kept_parameter is not None and self._kept_parameter.grad is None:
            self._refuse("the script clears the gradients itself, not by zero_grad()")
        return loss / self._parts

    def _keep_gradients(self) -> None:
        if self._parts > 1 and self._own_gradients.are_needed:
            self._own_gradients.keep(self._hook.modules.found)

    def _refuse_trainers(self) -> None:
        callers = set()
        frame: Any = sys._getframe()
        while frame is not None:
            callers.add(frame.f_globals.get("__name__", ""))
            frame = frame.f_back
        for prefix, remedy in _TRAINERS.items():
            if any(name.startswith(prefix) for name in callers):
                self._refuse(f'the trainer accumulates itself; pass the script the number for {remedy} (apply = "arg")')
                return

    def _may_step(self, optimizer: Any) -> bool:
        """Counts a part. Returns true if it is the last part, after which the optimizer steps."""
        if self._parts > 1 and self._optimizer not in (None, id(optimizer)):
            self._refuse("the script has more than one optimizer")
        self._optimizer = id(optimizer)
        for scheduler in self._parts_since_call:
            self._parts_since_call[scheduler] += 1
        is_last = self._is_last()
        self._done = 0 if is_last or self._parts == 1 else self._done + 1
        if not is_last:
            parameters = (p for group in optimizer.param_groups for p in group["params"])
            self._kept_parameter = next((parameter for parameter in parameters if parameter.grad is not None), None)
        return is_last or self._parts == 1

    def _around_zero_grad(self, original: Function) -> Function:
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
            if self._done > 0:
                return
            if self._parts > 1 and self._own_gradients.are_needed:
                original(owner, set_to_none=False)  # keeps the memory that `OwnGradients` gave the gradients
            else:
                original(owner, *args, **kwargs)

        return zero_grad

    def _around_clip_norm(self, original: Function) -> Function:
        """Clips only with the last part; before that it only returns the norm."""

        def clip_grad_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
            return original(parameters, max_norm if self._is_last() else float("inf"), *args, **kwargs)

        return clip_grad_norm_

    def _around_clip_value(self, original: Function) -> Function:
        def clip(*args: Any, **kwargs: Any) -> None:
            if self._is_last():
                original(*args, **kwargs)

        return clip

    def _around_scheduler(self, original: Function) -> Function:
        """If a scheduler is called after each part, skips all its calls but the call after the last part.

        A scheduler that is called less often, such as after each epoch, keeps all its calls.
        """

        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            parts = self._parts_since_call.get(id(scheduler))
            self._parts_since_call[id(scheduler)] = 0
            if parts == 1 and self._done > 0:
                return None
            return original(scheduler, *args, **kwargs)

        return step


def _subclasses(kind: type) -> set[type]:
    return {inner for child in kind.__subclasses__() for inner in {child, *_subclasses(child)}}
