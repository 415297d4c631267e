"""CUDA graphs that hold whole steps: nothing is computed while they are captured, and each replay makes those steps."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch

from gputune._hook.patching import Function, replace


@dataclass(frozen=True)
class CapturedStep:
    """A step in a graph: what is known of it without running it."""

    optimizer: Any
    forwards: int
    samples: Optional[int]


class _Held:
    """What is in one graph. Each replay computes the losses anew, in their place."""

    def __init__(self) -> None:
        self.steps: list[CapturedStep] = []
        self.losses: list[torch.Tensor] = []


class Graphs:
    """`torch.cuda.CUDAGraph`, by which `torch.cuda.graph` goes, too. Tested on a stand-in; no GPU has run it yet."""

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
        """Whether there is any."""
        return len(self._held) > 0

    def takes_loss(self, loss: torch.Tensor) -> bool:
        """Whether a loss is one of each replay, and none of now."""
        if self._captured is not None:
            self._captured.losses.append(loss.detach())
        return self._captured is not None

    def takes_step(self, step: CapturedStep) -> bool:
        """Whether a step is one of each replay, and none of now."""
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
