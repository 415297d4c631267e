"""Counts the steps of a script without an optimizer, which changes the weights itself."""

from __future__ import annotations

from typing import Any

from torch import nn

from gputune._hook.loader_settings import ACCUMULATION
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace
from gputune._hook.precision import PRECISION

#: Rounds of computing and zeroing gradients, without an optimizer's step, after which the hook counts steps by hand.
#: Scripts with several optimizers may zero one model's gradients before another model's first step.
_ROUNDS = 3

_REASON = "the script has no optimizer of torch.optim: it changes the weights itself"


class ByHand:
    """Counts a call of `module.zero_grad()` after a backward pass as the end of a step."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._rounds = 0
        self._is_clock = False

    def install(self) -> None:
        replace(nn.Module, "zero_grad", self._around_zero_grad)

    def _around_zero_grad(self, original: Function) -> Function:
        def zero_grad(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            original(module, *args, **kwargs)
            steps = self._hook.steps
            if not steps.has_loss or (steps.number > 0 and not self._is_clock):
                return
            self._rounds += 1
            if self._rounds < _ROUNDS:
                steps.drop_losses()
                return
            if not self._is_clock:
                self._is_clock = True
                self._reject_what_needs_an_optimizer()
            for finish in self._hook.optimizers.after_step:
                finish(self)
            steps.end_step(self)

        return zero_grad

    def _reject_what_needs_an_optimizer(self) -> None:
        session = self._hook.session
        if session.value(PRECISION) == "fp16":
            session.reject(PRECISION, f"{_REASON}, so a scaled loss cannot be undone")
        if int(session.value(ACCUMULATION, 1)) > 1:
            session.reject(ACCUMULATION, _REASON)
