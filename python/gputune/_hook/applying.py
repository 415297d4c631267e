"""The hook of `gputune run`: applies settings, but does not time steps, report to gputune or end the run.

The first step shows which loader, module and device train. From then on the wrappers only call the originals.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as dataloader_module

from gputune._client import Reporter
from gputune._hook import devices, loader, loader_kinds, parts, steps, timeline
from gputune._hook.patching import Function, replace
from gputune._hook.session import UnmeasuredSession


class Phases(timeline.Phases):
    """Tracks the open phases and the training device, and measures no time."""

    def _use(self, device: torch.device) -> None:
        self.device = device
        self.clock.is_capturing = getattr(devices.module_of(device), "is_current_stream_capturing", lambda: False)
        for change in self.changed:
            change(device)

    def enter(self, name: str) -> None:
        self._open.append((name, None))

    def leave(self) -> None:
        if self._open:
            self._open.pop()


class Loaders(loader.Loaders):
    """Applies settings to loaders, and counts their batches until the first step is over."""

    def install(self) -> None:
        replace(DataLoader, "__init__", self._around_init)
        replace(DataLoader, "__iter__", self._around_iter)
        replace(DataLoader, "_get_iterator", self._around_iter)
        loader_kinds.watch({"__init__": self._around_init, "__iter__": self._around_iter})
        replace(dataloader_module._BaseDataLoaderIter, "__next__", self._around_next)

    def _around_next(self, original: Function) -> Function:
        def __next__(iterator: Any) -> Any:
            batch = original(iterator)
            state = iterator.__dict__.get("_gputune")
            if state is not None and not self._is_first_step_over:
                self._pulls += 1
                state.pulled_at = self._pulls
                state.pulls += 1
            return batch

        return __next__


class Steps(steps.Steps):
    """Finds the first step."""

    def add_forward(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        pass

    def note_failure(self, error: Exception) -> None:
        pass

    def add_loss(self, loss: torch.Tensor) -> None:
        self._losses.count += 1

    def end_step(self, optimizer: Any, trains: bool = True) -> None:
        if not self.is_clock(optimizer):
            return
        self.number += 1
        self.drop_losses()
        if self.number == 1 and Reporter.hooked() is not None:
            self._phases.settle()
            self._loaders.step(0, 0)
            self._begin()


class Hook(parts.Hook):
    """The parts of the hook that apply settings."""

    session_type, phases_type, loaders_type, steps_type = UnmeasuredSession, Phases, Loaders, Steps

    def install(self) -> None:
        for part in (self.loaders, self.backward, self.modules, self.optimizers):
            part.install()
        self.optimizers.after_step.append(lambda optimizer: self.modules.end_search())
