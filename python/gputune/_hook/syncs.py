"""Counts the calls in which a script waits for its device: it reads tensor values, or synchronises."""

from __future__ import annotations

from typing import Any

import torch

from gputune._hook.call_sites import CallSites
from gputune._hook.devices import module_of
from gputune._hook.patching import replace
from gputune._hook.timeline import Phases

#: Methods that need the values of a tensor on the host, and their labels in the report.
_METHODS = {
    "item": "item",
    "cpu": "cpu",
    "numpy": "numpy",
    "tolist": "tolist",
    "nonzero": "nonzero",
    "__bool__": "bool",
    "__float__": "float",
    "__int__": "int",
    "__repr__": "print",
    "__format__": "format",
}


class Syncs:
    """Counts calls that make the host wait. With a GPU only calls on its tensors count."""

    def __init__(self, phases: Phases) -> None:
        self.sites = CallSites("sync")
        self._phases = phases

    def install(self) -> None:
        for method, name in _METHODS.items():
            replace(torch.Tensor, method, self.sites.around(name, matters=self._is_on_device))
        for module in (torch.cuda, getattr(torch, "xpu", None), getattr(torch, "accelerator", None)):
            if hasattr(module, "synchronize"):
                replace(module, "synchronize", self.sites.around("synchronize"))

    def _is_on_device(self, tensor: Any) -> bool:
        device = self._phases.device
        return device is None or module_of(device) is None or tensor.device.type == device.type
