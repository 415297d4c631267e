"""Reports the steps of a Lightning `Trainer`."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:  # the older package
    from pytorch_lightning import Callback

import gputune
from gputune._hook.batches import samples_in


class GputuneCallback(Callback):
    """Reports each step of the optimizer, with its loss.

    A batch counts as many samples as its first tensor has rows, on every rank.
    """

    def __init__(self) -> None:
        self._step = 0
        self._samples = 0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not gputune.is_probe():
            return
        self._samples += (samples_in(batch) or 0) * trainer.world_size
        if trainer.global_step == self._step:
            return  # gradients are accumulated
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        samples, self._step, self._samples = self._samples, trainer.global_step, 0
        # Lightning divides the loss by the number of accumulated batches.
        gputune.step(samples or None, None if loss is None else loss * trainer.accumulate_grad_batches)
