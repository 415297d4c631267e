"""Losses of a step: numbers where the CPU computed them; on a device copies, which are read once they are there."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

#: Steps whose loss is always reported: the comparison with full precision uses them.
FIRST_LOSSES = 16


class Losses:
    """Those since the last step. On a device they are kept in the first steps, and when one is wanted."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[Any] = []
        self._is_wanted = True

    def add(self, loss: torch.Tensor) -> None:
        """A loss is about to be differentiated. It is copied at once, as the next replay of a CUDA graph overwrites it."""
        self.count += 1
        loss = loss.detach()
        if loss.device.type == "cpu":
            self._kept.append(float(loss))
        elif self._is_wanted:
            self._kept.append(loss.clone())

    def want(self) -> None:
        """The next step's loss is to be reported."""
        self._is_wanted = True

    def drop(self) -> None:
        """What was computed so far belongs to no step."""
        self._kept = []
        self.count = 0

    def take(self, step: int) -> list[Any]:
        """Those of the step that ends; none unless all are there."""
        kept = self._kept if len(self._kept) == self.count else []
        if kept and step >= FIRST_LOSSES:
            self._is_wanted = False
        self.drop()
        return kept


def mean(losses: list[Any], read: Callable[[torch.Tensor], float]) -> Optional[float]:
    """The mean over the micro-steps of a step that the device has finished."""
    if not losses:
        return None
    return sum(read(loss) if isinstance(loss, torch.Tensor) else loss for loss in losses) / len(losses)
