"""Times copies from the host to the training device. Does nothing on a CPU."""

from __future__ import annotations

import threading
from typing import Any

import torch

from gputune._hook.patching import Function, is_compiling, replace
from gputune._hook.step_times import COPIES
from gputune._hook.timeline import Phases


class Transfers:
    """Wraps `Tensor.to` and `Tensor.cuda` of host tensors, which modules and containers also use.

    Times only copies in the training thread with gradients on, as copies for an evaluation are not part of a step.
    """

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self._kinds: set[str] = set()  # kinds of devices whose copies are wrapped
        self._is_inside = False  # tensor subclasses call the wrapper again

    def install(self) -> None:
        self._phases.changed.append(self._begin)

    def _begin(self, device: torch.device) -> None:
        if not self._phases.clock.is_of_device or device.type in self._kinds:
            return
        if not self._kinds:
            replace(torch.Tensor, "to", self._around_copy)
        self._kinds.add(device.type)
        if hasattr(torch.Tensor, device.type):
            replace(torch.Tensor, device.type, self._around_copy)

    def _around_copy(self, original: Function) -> Function:
        phases, thread, has_gradients = self._phases, threading.get_ident, torch.is_grad_enabled
        is_to = original.__name__ == "to"

        def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or phases.thread != thread() or self._is_inside or not has_gradients():
                return original(tensor, *args, **kwargs)
            kind = phases.device.type if phases.device is not None else None
            if tensor.device.type != "cpu" or phases.is_inside("forward") or (is_to and _target(args, kwargs, kind) != kind):
                return original(tensor, *args, **kwargs)
            self._is_inside = True
            begin = phases.clock.mark()
            try:
                copied = original(tensor, *args, **kwargs)
            finally:
                self._is_inside = False
            phases.add(COPIES, begin, phases.clock.mark())
            return copied

        return copy


def _target(args: Any, kwargs: Any, own_kind: Any) -> Any:
    """The kind of the target device of `Tensor.to`; a plain number means a device of the kind `own_kind`."""
    wanted = kwargs.get("device", kwargs.get("other", args[0] if args else None))
    if isinstance(wanted, torch.Tensor):
        wanted = wanted.device
    if isinstance(wanted, torch.device):
        return wanted.type
    if isinstance(wanted, str):
        return wanted.partition(":")[0]
    return own_kind if isinstance(wanted, int) else None
