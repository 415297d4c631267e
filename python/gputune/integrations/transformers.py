"""Reports the steps of Hugging Face's `Trainer`."""

from __future__ import annotations

from typing import Any

import gputune
from transformers import TrainerCallback


class GputuneCallback(TrainerCallback):
    """Reports each step of the optimizer, with the samples that the `TrainingArguments` set, on all processes.

    A step has the loss that the trainer logged since the previous step (`logging_steps`), if any.
    """

    def __init__(self) -> None:
        self._loss: float | None = None

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self._loss = (logs or {}).get("loss", self._loss)  # the logs of an evaluation have no loss

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        loss, self._loss = self._loss, None
        gputune.step(args.train_batch_size * args.gradient_accumulation_steps * args.world_size, loss)
