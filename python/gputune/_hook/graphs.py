"""CUDA graphs that hold whole steps: a capture computes nothing, and each replay runs the captured steps."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch

from gputune._hook.patching import Function, replace


@dataclass(frozen=True)
class CapturedStep:
    """A step in a graph, with the facts known without running it."""

    optimizer: Any
    forwards: int
    samples: Optional[int]


class _Held:
    """The steps and losses of one graph. Each replay overwrites the losses in place."""

    def __init__(self) -> None:
        self.steps: list[CapturedStep] = []
        self.losses: list[torch.Tensor] = []


class Graphs:
    """Wraps `torch.cuda.CUDAGraph`, which `torch.cuda.graph` also uses."""

    def __init__(
        self, add_loss: Callable[[torch.Tensor], None], end_step: Callable[[CapturedStep], None]
    ) -> None:
        self._add_loss = add_loss
        self._end_step = end_step
        self._captured: Optional[_Held] = None
        self._held: weakref.WeakKeyDictionary[Any, _Held] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        kind = getattr(torch.cuda, "CUDAGraph", None)
        if all(hasattr(kind, name) for name in ("capture_begin", "capture_end", "replay")):
            replace(kind, "capture_begin", self._around_begin)
            replace(kind, "capture_end", self._around_end)
            replace(kind, "replay", self._around_replay)

    @property
    def are_captured(self) -> bool:
        """True if a graph was captured."""
        return len(self._held) > 0

    def takes_loss(self, loss: torch.Tensor) -> bool:
        """True during a capture: the loss belongs to each replay instead of the current step."""
        if self._captured is not None:
            self._captured.losses.append(loss.detach())
        return self._captured is not None

    def takes_step(self, step: CapturedStep) -> bool:
        """True during a capture: the step belongs to each replay and is not counted now."""
        if self._captured is not None:
            self._captured.steps.append(step)
        return self._captured is not None

    def _around_begin(self, original: Function) -> Function:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
            original(graph, *args, **kwargs)
            self._captured = self._held[graph] = _Held()

        return capture_begin

    def _around_end(self, original: Function) -> Function:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> None:
            self._captured = None
            original(graph, *args, **kwargs)

        return capture_end

    def _around_replay(self, original: Function) -> Function:
        def replay(graph: Any, *args: Any, **kwargs: Any) -> None:
            original(graph, *args, **kwargs)
            held = self._held.get(graph)
            if held is None or not held.steps:
                return
            for loss in held.losses:
                self._add_loss(loss)
            for step in held.steps:
                self._end_step(step)

        return replay
