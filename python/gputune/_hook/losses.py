"""Keeps the losses of a step: on a CPU as numbers, on a device as copies, read once the device has computed them."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

#: Number of first steps whose loss is always reported, for the comparison with full precision.
FIRST_LOSSES = 16


class Losses:
    """The losses since the last step. Losses on a device are kept in the first steps and after a call of `want`."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[Any] = []
        self._is_wanted = True

    def add(self, loss: torch.Tensor) -> None:
        """Records a loss before backward. Copies it at once, as a replay of a CUDA graph overwrites the loss."""
        self.count += 1
        loss = loss.detach()
        if loss.device.type == "cpu":
            self._kept.append(float(loss))
        elif self._is_wanted:
            self._kept.append(loss.clone())

    def want(self) -> None:
        """Requests the loss of the next step."""
        self._is_wanted = True

    def drop(self) -> None:
        """Drops the losses since the last step, as they belong to no step."""
        self._kept = []
        self.count = 0

    def take(self, step: int) -> list[Any]:
        """The losses of the step that ends; empty unless all were kept."""
        kept = self._kept if len(self._kept) == self.count else []
        if kept and step >= FIRST_LOSSES:
            self._is_wanted = False
        self.drop()
        return kept


def mean(losses: list[Any], read: Callable[[torch.Tensor], float]) -> Optional[float]:
    """The mean of the losses of a step, after the device has finished the step. `read` reads a loss on a device."""
    if not losses:
        return None
    return sum(read(loss) if isinstance(loss, torch.Tensor) else loss for loss in losses) / len(losses)
