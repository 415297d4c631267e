"""Finds the learning-rate schedules that the script makes for a number of steps, and the line that makes them."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any, Callable, Iterator, Optional

from torch.optim import lr_scheduler

from gputune._hook.call_sites import is_library
from gputune._hook.loader_settings import ACCUMULATION, PREFIX
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace

#: Schedules with a fixed length, and the attribute that holds it.
_LENGTHS = {
    "OneCycleLR": "total_steps",
    "CosineAnnealingLR": "T_max",
    "LinearLR": "total_iters",
    "PolynomialLR": "total_iters",
}
#: The local variable with the length in functions that make a LambdaLR (such as `get_linear_schedule_with_warmup`).
_LENGTH = "num_training_steps"
#: Least number of schedule steps per training step. A schedule with fewer steps counts epochs. A round number below 1,
#: as accumulation skips some steps.
_OFTEN = 0.5


class _Made:
    """A schedule that the script made."""

    def __init__(self, schedule: Any, name: str, place: str, steps: int, begun_at: int) -> None:
        self.schedule = weakref.ref(schedule)
        self.stepped = self.schedule  # the schedule whose steps count: a SequentialLR steps only one of its parts
        self.name = name
        self.place = place
        self.steps = steps
        self.begun_at = begun_at  # training steps before the schedule was made

    def is_for_steps(self, number: int) -> bool:
        """True if the script has stepped the schedule in about each of the `number` training steps so far."""
        taken = getattr(self.stepped(), "last_epoch", 0)
        return number > self.begun_at and taken >= _OFTEN * (number - self.begun_at)

    @property
    def words(self) -> str:
        return f"{self.place} makes {self.name}"


class Schedules:
    """Reports the longest schedule that advances with each training step, unless its length follows the batch size."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._made: list[_Made] = []

    def install(self) -> None:
        for name, attribute in _LENGTHS.items():
            if hasattr(lr_scheduler, name):  # PolynomialLR came with torch 1.13
                replace(getattr(lr_scheduler, name), "__init__", self._around_init(name, attribute))
        replace(lr_scheduler.LambdaLR, "__init__", self._around_lambda)
        replace(lr_scheduler.SequentialLR, "__init__", self._around_sequence)
        replace(lr_scheduler.OneCycleLR, "get_lr", self._around_rates)
        self._hook.steps.edges.append(lambda is_last: self._say())
        self._hook.explanations.append(self._explained)

    def _around_init(self, name: str, attribute: str) -> Callable[[Function], Function]:
        def around(original: Function) -> Function:
            def __init__(schedule: Any, *args: Any, **kwargs: Any) -> None:
                original(schedule, *args, **kwargs)
                self._note(schedule, name, getattr(schedule, attribute, None), sys._getframe(1))

            return __init__

        return around

    def _around_lambda(self, original: Function) -> Function:
        def __init__(schedule: Any, *args: Any, **kwargs: Any) -> None:
            original(schedule, *args, **kwargs)
            outer = None
            for frame in _frames(sys._getframe(1)):
                path = frame.f_code.co_filename
                if not is_library(path):
                    break
                if not path.endswith("optimization.py"):
                    return  # a trainer makes the schedule, and computes its steps
                outer = frame if _LENGTH in frame.f_locals else outer
            if outer is not None:
                self._note(schedule, outer.f_code.co_name, outer.f_locals[_LENGTH], outer)

        return __init__

    def _around_sequence(self, original: Function) -> Function:
        def __init__(schedule: Any, *args: Any, **kwargs: Any) -> None:
            original(schedule, *args, **kwargs)
            for made in self._made:
                if any(made.schedule() is part for part in schedule._schedulers):
                    made.stepped = weakref.ref(schedule)

        return __init__

    def _around_rates(self, original: Function) -> Function:
        """Keeps the last rates after the end of a schedule if gputune has changed the batch size.

        The script may have computed the length for the old batch size.
        """

        def get_lr(schedule: Any) -> Any:
            settings = self._hook.session.settings
            is_changed = self._hook.is_live or PREFIX + "batch_size" in settings or ACCUMULATION in settings
            if is_changed and schedule.last_epoch > schedule.total_steps:
                return [group["lr"] for group in schedule.optimizer.param_groups]
            return original(schedule)

        return get_lr

    def _note(self, schedule: Any, name: str, steps: Any, frame: Any) -> None:
        own = next((frame for frame in _frames(frame) if not is_library(frame.f_code.co_filename)), None)
        if own is not None and isinstance(steps, int) and steps > 0:
            place = f"{os.path.basename(own.f_code.co_filename)}:{own.f_lineno}"
            self._made.append(_Made(schedule, name, place, steps, self._hook.steps.number))

    def _say(self) -> None:
        number, batches = self._hook.steps.number, self._hook.loaders.batches
        stepped = [made for made in self._made if made.is_for_steps(number)]
        if not stepped:
            return
        longest = max(stepped, key=lambda made: made.steps)
        per_epoch = None if batches is None else max(batches // (self._hook.steps.losses_per_step or 1), 1)
        # A schedule for the steps of all epochs was computed from the loader, so it follows the batch size. A live
        # process makes its schedule only once, so there any whole number of epochs counts as computed.
        epochs = self._hook.facts.known("run.epochs")
        is_computed = per_epoch is not None and (
            longest.steps % per_epoch == 0 if self._hook.is_live else longest.steps == per_epoch * (epochs or 0)
        )
        if not is_computed:
            self._hook.facts.say("schedule", longest.words)
            self._hook.facts.say("schedule.steps", longest.steps)

    def _explained(self, error: Any) -> Optional[str]:
        """The explanation of the error that OneCycleLR raises after its last step."""
        made = next((made for made in self._made if made.name == "OneCycleLR"), None)
        if made is None or not isinstance(error, ValueError) or not str(error).startswith("Tried to step"):
            return None
        return f"{made.words} for {made.steps:,} steps, and the script steps it more often: not a limit of the config"


def _frames(frame: Any) -> Iterator[Any]:
    while frame is not None:
        yield frame
        frame = frame.f_back
