"""Finds how long the script trains: from a trainer's settings, the script's arguments, or its variables."""

from __future__ import annotations

import argparse
import sys
from types import FrameType
from typing import Any, Callable, Iterable, Optional

from gputune._client import Reporter, at_exit, rank_and_ranks
from gputune._hook.parts import Hook
from gputune._hook.patching import Function, replace

#: Names of arguments that say how long a script trains: epochs, then steps.
_EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "nepochs", "epoch", "num_train_epochs")
_STEPS = ("max_steps", "num_steps", "max_iters", "train_steps", "total_steps", "max_train_steps", "steps", "iters")
#: Names of arguments for steps that certainly limit the training.
_LIMITS = ("max_steps", "max_iters", "train_steps", "total_steps", "max_train_steps")
#: Names of variables, also in capitals: epochs, then steps. A variable `epoch` or `total_steps` often counts what was done.
_VARIABLES = (
    tuple(name for name in _EPOCHS if name != "epoch"),
    tuple(name for name in _LIMITS if name.startswith("max_")),
)


class RunLength:
    """Notes the arguments of the script, and asks its trainer at the first step."""

    def __init__(self, hook: Hook) -> None:
        self._session = hook.session
        self._optimizers = hook.optimizers
        self._facts = hook.facts
        self._loaders = hook.loaders
        self._arguments: Any = None
        self._options: dict[str, str] = {}

    def install(self) -> None:
        replace(argparse.ArgumentParser, "parse_known_args", self._around_parse)
        at_exit(self._say_at_end, 0)

    def _around_parse(self, original: Function) -> Function:
        def parse_known_args(parser: Any, *args: Any, **kwargs: Any) -> Any:
            parsed = original(parser, *args, **kwargs)
            self._arguments = parsed[0]
            options = ((action.dest, action.option_strings) for action in parser._actions)
            # The parser of a subcommand runs within the main parser.
            self._options.update((dest, max(names, key=len)) for dest, names in options if names)
            return parsed

        return parse_known_args

    def say(self) -> None:
        """Reports the length as a number of epochs or of steps, if it is known."""
        epochs, steps = _of_trainer()
        if epochs is None and steps is None:
            epochs, steps = _first(self._arguments, _EPOCHS), _first(self._arguments, _STEPS)
            is_limit = steps == _first(self._arguments, _LIMITS)
            if epochs is not None and steps is not None and not is_limit and steps < (self._loaders.batches or 0):
                steps = None  # fewer than an epoch has: the argument counts other steps, such as those of a sequence
        if epochs is None and steps is None:
            epochs, steps = _of_variables()
        if steps is not None:  # steps come first: the epochs may be a default, which the limit on steps overrides
            self._facts.say("run.steps", steps)
            self._facts.say("run.steps_option", self._option(_STEPS, lambda value: value == steps))
        elif epochs is not None:
            self._facts.say("run.epochs", epochs)
            self._facts.say("run.epochs_option", self._option(_EPOCHS, lambda value: value == epochs))

    def _option(self, names: tuple[str, ...], is_wanted: Callable[[Any], bool]) -> Optional[str]:
        """The first of the script's options with one of these names, if its value is wanted."""
        known = (name for name in names if name in self._options)
        return next((self._options[name] for name in known if is_wanted(getattr(self._arguments, name, None))), None)

    def _say_at_end(self) -> None:
        """Connects to gputune if the script made an optimizer and ends before its first step.

        Without a connection, gputune could not distinguish such a script from a script without the hook.
        """
        reporter = Reporter.current()
        is_before_steps = self._optimizers.has_any and not self._session.is_checked and self._session.is_ours
        if reporter is None or not is_before_steps or rank_and_ranks()[0] != 0:
            return
        reporter.send_all([])  # says hello
        for fact, names in (("run.epochs_option", _EPOCHS), ("run.steps_option", _STEPS)):
            self._facts.say(fact, self._option(names, lambda value: True))
        self._session.flush()
        reporter.say_bye()  # an exit handler that is registered during the exit may not run


def _first(owner: Any, names: tuple[str, ...]) -> Optional[float]:
    return _first_number(getattr(owner, name, None) for name in names)


def _first_number(values: Iterable[Any]) -> Optional[float]:
    numbers = (value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool))
    return next((float(number) for number in numbers if number > 0), None)


def _of_variables() -> tuple[Optional[float], Optional[float]]:
    """The epochs and the steps by variables of the outermost function or module on the stack that has one."""
    found: tuple[Optional[float], Optional[float]] = (None, None)
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        # Before Python 3.13, reading the variables of a function changes what its `locals()` returned.
        is_module = frame.f_code.co_name == "<module>"
        if is_module or sys.version_info >= (3, 13):
            found = _lengths(frame.f_globals if is_module else frame.f_locals) or found
        frame = frame.f_back
    return found


def _lengths(variables: Any) -> Optional[tuple[Optional[float], Optional[float]]]:
    """The epochs and the steps that some variables state; `None` without either."""
    try:
        known = {name.lower(): value for name, value in list(variables.items()) if isinstance(name, str)}
    except Exception:  # a mapping of the script's own
        return None
    epochs, steps = (_first_number(known.get(name) for name in names) for names in _VARIABLES)
    return None if epochs is None and steps is None else (epochs, steps)


def _of_trainer() -> tuple[Optional[float], Optional[float]]:
    """The epochs and the steps of the transformers or Lightning trainer on the stack; `None` without a limit."""
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        owner = _self_of(frame)
        modules = [kind.__module__ or "" for kind in type(owner).__mro__]
        if any(module.startswith("transformers.") for module in modules) and hasattr(owner, "train_dataset"):
            arguments = getattr(owner, "args", None)
            return _first(arguments, ("num_train_epochs",)), _first(arguments, ("max_steps",))
        if any("lightning" in module.split(".")[0] for module in modules) and hasattr(owner, "fit_loop"):
            return _first(owner, ("max_epochs",)), _first(owner, ("max_steps",))
        frame = frame.f_back
    return None, None


def _self_of(frame: FrameType) -> Any:
    """The object whose method runs in a frame of transformers or Lightning; `None` for other frames.

    Until Python 3.12 the dictionary `f_locals` keeps a function's variables alive, so this clears it.
    """
    code = frame.f_code
    if code.co_varnames[:1] != ("self",) or not any(name in code.co_filename for name in ("transformers", "lightning")):
        return None
    known = frame.f_locals
    owner = known.get("self")
    if sys.version_info < (3, 13):
        known.clear()
    return owner
