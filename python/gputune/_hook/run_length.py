"""Finds how long the script trains: from its arguments, or from the settings of a trainer."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Optional

from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace

#: Names of arguments that say how long a script trains: epochs, then steps.
_EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "nepochs", "epoch", "num_train_epochs")
_STEPS = ("max_steps", "num_steps", "max_iters", "train_steps", "total_steps", "max_train_steps", "steps", "iters")
#: Those that surely limit the training.
_LIMITS = ("max_steps", "max_iters", "train_steps", "total_steps", "max_train_steps")


class RunLength:
    """Notes the arguments of the script, and asks its trainer at the first step."""

    def __init__(self, hook: Hook) -> None:
        self._facts = hook.facts
        self._loaders = hook.loaders
        self._arguments: Any = None
        self._options: dict[str, str] = {}

    def install(self) -> None:
        replace(argparse.ArgumentParser, "parse_known_args", self._around_parse)

    def _around_parse(self, original: Function) -> Function:
        def parse_known_args(parser: Any, *args: Any, **kwargs: Any) -> Any:
            parsed = original(parser, *args, **kwargs)
            self._arguments = parsed[0]
            options = ((action.dest, action.option_strings) for action in parser._actions)
            self._options = {dest: max(names, key=len) for dest, names in options if names}
            return parsed

        return parse_known_args

    def say(self) -> None:
        """Reports the length as a number of epochs or of steps, if it is known."""
        epochs, steps = _of_trainer()
        if epochs is None and steps is None:
            epochs, steps = _first(self._arguments, _EPOCHS), _first(self._arguments, _STEPS)
            is_limit = steps == _first(self._arguments, _LIMITS)
            if epochs is not None and steps is not None and not is_limit and steps < (self._loaders.batches or 0):
                steps = None  # fewer than one epoch has: it counts something else, such as the steps of a sequence
        if steps is not None:  # comes first: a number of epochs may be a default, which the limit on steps overrides
            self._facts.say("run.steps", steps)
            for name in _STEPS:
                if getattr(self._arguments, name, None) == steps and name in self._options:
                    self._facts.say("run.steps_option", self._options[name])
                    break
        elif epochs is not None:
            self._facts.say("run.epochs", epochs)


def _first(owner: Any, names: tuple[str, ...]) -> Optional[float]:
    for name in names:
        value = getattr(owner, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
    return None


def _of_trainer() -> tuple[Optional[float], Optional[float]]:
    """The epochs and the steps of the transformers or Lightning trainer that trains, where they have a limit."""
    frame: Any = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        module = type(owner).__module__ or ""
        if module.startswith("transformers.") and hasattr(owner, "train_dataset"):
            arguments = getattr(owner, "args", None)
            return _first(arguments, ("num_train_epochs",)), _first(arguments, ("max_steps",))
        if "lightning" in module.split(".")[0] and hasattr(owner, "fit_loop"):
            return _first(owner, ("max_epochs",)), _first(owner, ("max_steps",))
        frame = frame.f_back
    return None, None
