"""What a script does between training steps: evaluation, checkpoints, edges of epochs. Each is a phase of the next step."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch

from gputune._hook.marks import Marks
from gputune._hook.patching import Function, is_compiling, replace
from gputune._hook.timeline import Phases

#: Passes without gradients: from the first sign of them until training goes on.
EVALUATION = "evaluation"
#: Weights and states that are written.
CHECKPOINT = "checkpoint"
#: The end of an epoch, the start of the loader's workers, and the first batch of the next.
EPOCH_EDGE = "epoch_edge"

#: Functions that write checkpoints besides `torch.save`, by module; looked at when the first step is over.
_WRITERS = (
    ("safetensors.torch", "save_file"),
    ("safetensors.torch", "save_model"),
    ("torch.distributed.checkpoint", "save"),
)


class Outside:
    """Opens and closes these phases; those within another one are part of it, but for checkpoints."""

    def __init__(self, phases: Phases, marks: Marks) -> None:
        self._phases = phases
        self._marks = marks
        self._is_saving = False
        self.is_training = False
        """Whether the first step is over. What came before it is the run's start."""
        self.is_evaluating = False
        self._is_in_step = False

    def install(self) -> None:
        replace(torch, "save", self._around_save)

    def begin(self) -> None:
        """At the end of the first step."""
        self.is_training = True
        for module, name in _WRITERS:
            if hasattr(sys.modules.get(module), name):
                replace(sys.modules[module], name, self._around_save)

    def is_here(self) -> bool:
        """Whether this is the thread that trains, after the first step."""
        return self.is_training and self._phases.thread in (None, threading.get_ident())

    def passes(self) -> None:
        """A pass without gradients of a module that is in training: part of a step that has begun, such as a target's."""
        if not self._is_in_step:
            self.evaluates()

    def evaluates(self) -> None:
        """A sign of evaluation: a module in evaluation, or a loader that does not train."""
        self._marks.note(EVALUATION)
        if not self.is_evaluating and not self._phases.is_any_open and self.is_here() and not is_compiling():
            self.is_evaluating = True
            self._phases.enter(EVALUATION)

    def end_step(self, is_marked: bool) -> None:
        """What comes next may be something else."""
        self._is_in_step = False

    def trains(self) -> None:
        """A sign of training: a module goes to training, a pass with gradients, a batch for it."""
        self._is_in_step = True
        if self.is_evaluating and self._phases.is_within(EVALUATION) and self.is_here():
            self.is_evaluating = False
            self._phases.leave()

    def enter_edge(self) -> bool:
        """At the edge of an epoch; whether it is to be left again."""
        if not self.is_here():
            return False
        self.trains()
        self._phases.enter(EPOCH_EDGE)
        return True

    def leave_edge(self) -> None:
        self._phases.leave()

    def end_epoch(self, begin: Any) -> None:
        """The training's loader has no more batches, and has ended its workers."""
        if self.is_here() and begin is not None:
            self._phases.add(EPOCH_EDGE, begin, self._phases.clock.mark())

    def _around_save(self, original: Function) -> Function:
        def save(*args: Any, **kwargs: Any) -> Any:
            if self._is_saving or not self.is_here():
                return original(*args, **kwargs)
            self._marks.note(CHECKPOINT)
            self._is_saving = True
            self._phases.enter(CHECKPOINT)
            try:
                return original(*args, **kwargs)
            finally:
                self._phases.leave()
                self._is_saving = False

        return save
