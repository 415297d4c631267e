"""Reports the steps of a loop with Hugging Face's `Accelerator`."""

from __future__ import annotations

from typing import Any

import gputune
from accelerate import Accelerator
from gputune._hook.batches import samples_in


class GputuneCallback:
    """Reports the steps of the optimizer. Accelerate has no callbacks, so the loop calls `on_batch_end`.

        steps = GputuneCallback(accelerator)
        for batch in loader:
            with accelerator.accumulate(model):
                ...
            steps.on_batch_end(batch, loss)

    A batch counts as many samples as its first tensor has rows, on every process.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._samples = 0

    def on_batch_end(self, batch: Any, loss: Any = None) -> None:
        """Reports a step if the optimizer made one with this batch, and not if gradients are still accumulated."""
        if not gputune.is_probe():
            return
        self._samples += (samples_in(batch) or 0) * self._accelerator.num_processes
        if self._accelerator.sync_gradients:
            samples, self._samples = self._samples, 0
            gputune.step(samples or None, loss)
