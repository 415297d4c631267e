"""Reports the steps of Keras's `fit`."""

from __future__ import annotations

from typing import Any

import gputune
from keras.callbacks import Callback


class GputuneCallback(Callback):
    """Reports each batch with Keras's loss, the mean since the start of the epoch.

    `batch_size` counts the samples of all replicas. With `steps_per_execution`, one report covers several batches.
    """

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self._batch_size = batch_size
        self._last = -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._last = -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        batches, self._last = batch - self._last, batch
        gputune.step(batches * self._batch_size, (logs or {}).get("loss"))
