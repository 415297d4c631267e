"""Phases between training steps: evaluation, checkpoints, edges of epochs. Each counts as a phase of the next step."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import torch

from gputune._hook.marks import Marks
from gputune._hook.patching import Function, is_compiling, replace
from gputune._hook.timeline import Phases

#: Name of the phase from the first sign of evaluation until training goes on.
EVALUATION = "evaluation"
#: Name of the phase in which the script writes weights and states.
CHECKPOINT = "checkpoint"
#: Name of the phase between two epochs: the end of an epoch, the start of the loader's workers, and the first batch of
#: the next epoch.
EPOCH_EDGE = "epoch_edge"

#: Functions besides `torch.save` that write checkpoints, by module. They are wrapped after the first step.
_WRITERS = (
    ("safetensors.torch", "save_file"),
    ("safetensors.torch", "save_model"),
    ("torch.distributed.checkpoint", "save"),
)


class Outside:
    """Opens and closes the phases between steps.

    Evaluation inside another phase counts to that phase. A checkpoint inside another phase counts as a checkpoint.
    """

    def __init__(self, phases: Phases, marks: Marks) -> None:
        self._phases = phases
        self._marks = marks
        self._is_saving = False
        self.is_training = False
        """True once the first step is over. The time before it is the start of the run."""
        self.is_evaluating = False
        self._is_in_step = False

    def install(self) -> None:
        replace(torch, "save", self._around_save)

    def begin(self) -> None:
        """Starts recording at the end of the first step."""
        self.is_training = True
        for module, name in _WRITERS:
            if hasattr(sys.modules.get(module), name):
                replace(sys.modules[module], name, self._around_save)

    def is_here(self) -> bool:
        """True in the training thread, after the first step."""
        return self.is_training and self._phases.thread in (None, threading.get_ident())

    def passes(self) -> None:
        """Notes a pass without gradients of a module in training mode, such as a target network.

        Such a pass within a step is part of the step. Between steps it is a sign of evaluation.
        """
        if not self._is_in_step:
            self.evaluates()

    def evaluates(self) -> None:
        """Notes a sign of evaluation: a module in evaluation mode, or a loader that does not train."""
        self._marks.note(EVALUATION)
        if not self.is_evaluating and not self._phases.is_any_open and self.is_here() and not is_compiling():
            self.is_evaluating = True
            self._phases.enter_outside(EVALUATION)

    def end_step(self, is_marked: bool) -> None:
        """Notes the end of a step: evaluation may come next."""
        self._is_in_step = False

    def trains(self) -> None:
        """Notes a sign of training: a module enters training mode, a pass with gradients, a training batch."""
        self._is_in_step = True
        if self.is_evaluating and self._phases.is_within(EVALUATION) and self.is_here():
            self.is_evaluating = False
            self._phases.leave()

    def enter_edge(self) -> bool:
        """Opens the phase at the edge of an epoch. Returns true if the caller must call `leave_edge`."""
        if not self.is_here():
            return False
        self.trains()
        self._phases.enter_outside(EPOCH_EDGE)
        return True

    def leave_edge(self) -> None:
        self._phases.leave()

    def end_epoch(self, begin: Any) -> None:
        """Adds the end of an epoch: the training loader has no more batches, and has ended its workers.

        `begin` is the mark at the script's request for a further batch; `None` if no mark was made. Then the phase
        begins at the end of the last step.
        """
        if not self.is_here() or self._phases.ended is None:
            return
        self._phases.clock.is_sparse = False
        begin = self._phases.last_end if begin is None else begin
        if begin is not None:
            self._phases.add(EPOCH_EDGE, begin, self._phases.clock.mark())
        else:  # the last step also ended without a mark, so only the host's time is known
            self._phases.host_phases.append((EPOCH_EDGE, time.perf_counter() - self._phases.ended))

    def _around_save(self, original: Function) -> Function:
        def save(*args: Any, **kwargs: Any) -> Any:
            if self._is_saving or not self.is_here():
                return original(*args, **kwargs)
            self._marks.note(CHECKPOINT)
            self._is_saving = True
            self._phases.enter_outside(CHECKPOINT)
            try:
                return original(*args, **kwargs)
            finally:
                self._phases.leave()
                self._is_saving = False

        return save
