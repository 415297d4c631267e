"""Names the object from which the training loop gets its batches, if it is no DataLoader.

gputune cannot set such a loader, as it does not know its settings. The name comes from the `for` statements around the
step, and from calls of `next` in them.
"""

from __future__ import annotations

import dis
import inspect
import sys
from types import CodeType, FrameType, GeneratorType, ModuleType
from typing import Any, Callable, NamedTuple, Optional

from gputune._hook.asked_iterators import PROGRESS, asking
from gputune._hook.call_sites import TORCH
from gputune._hook.parts import Hook
from gputune._hook.stacks import OURSELVES, SCRIPT, owner_of

#: Most frames around the step that are searched.
_DEEPEST = 64
#: Prefixes of the instructions that load a variable or an attribute.
_VARIABLES = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
#: Prefixes of instructions that end the previous statement, or a part of an expression that may not run.
_BREAKS = ("STORE_", "POP_TOP", "POP_ITER", "END_FOR", "RESUME", "RETURN", "YIELD", "RAISE")
#: Modules whose objects are no loaders: tensors, arrays, lists and iterators over them.
_PLAIN = ("builtins", "itertools", "collections", "torch", "numpy", "argparse", "types", "functools", "sklearn")


class OtherLoaders:
    """Reports the loader at the end of the first step."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def install(self) -> None:
        self._hook.steps.checks.append(self._look)

    def _look(self) -> None:
        name = None if self._hook.loaders.training_number is not None else name_of_loader(sys._getframe(1))
        if name is None:
            return
        self._hook.facts.say("loader.other", name)
        reason = (
            f"the training loop gets its batches from {name}, and gputune can set only a torch.utils.data.DataLoader"
        )
        for target in self._hook.session.settings:
            if target.startswith("dataloader."):
                self._hook.session.explain(target, reason)


class _Member(NamedTuple):
    """A method or property of an object."""

    owner: Any
    name: str
    value: Any


def name_of_loader(frame: Optional[FrameType]) -> Optional[str]:
    """The class of the object that the loops around a frame iterate, or the generator's name; `None` if unknown."""
    frames: list[FrameType] = []
    while frame is not None and len(frames) < _DEEPEST:
        frames.append(frame)
        frame = frame.f_back
    while frames and owner_of(frames[-1].f_code) != SCRIPT:  # launchers have loops of their own
        frames.pop()
    of_loop = (each for each in frames if owner_of(each.f_code) != OURSELVES and not _is_of_torch(each))
    return next((name for name in map(_named_in, of_loop) if name is not None), None)


def _is_of_torch(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(TORCH)


def _named_in(frame: FrameType) -> Optional[str]:
    code, instruction = frame.f_code, frame.f_lasti
    places = asking(code)
    around = [loop for loop in places.loops if loop.body <= instruction < loop.end]
    loads = [_loads_before(places.instructions, loop.position) for loop in reversed(around)]
    begin = around[0].body if around else 0
    end = around[0].end if around else sys.maxsize
    for index, each in enumerate(places.instructions):
        if each.argval == "next" and begin <= each.offset < end:
            is_method = each.opname.startswith(_ATTRIBUTES)
            loads.append((_loads_of_owner if is_method else _loads_after)(places.instructions, index))
    names = {name for load in loads for each in load for name in _names(each)}
    find = _variables(frame, code, names)
    described = (_described(value) for load in loads for value in _values(load, find))
    return next((name for name in described if name is not None), None)


def _loads_before(instructions: list[dis.Instruction], index: int) -> list[dis.Instruction]:
    """The instructions of the expression that a `for` statement iterates."""
    begin = index
    while begin > 0 and not _is_break(instructions[begin - 1].opname):
        begin -= 1
    # A list that is written in the `for` statement, such as a list of loaders, gives no batches.
    return [] if instructions[index - 1].opname.startswith("BUILD_") else instructions[begin:index]


def _is_break(name: str) -> bool:
    return name.startswith(_BREAKS) or "JUMP" in name


def _loads_after(instructions: list[dis.Instruction], index: int) -> list[dis.Instruction]:
    """The instructions that load the argument of `next`."""
    end = index + 1
    while end < len(instructions) and instructions[end].opname.startswith(("PUSH_NULL", *_VARIABLES, *_ATTRIBUTES)):
        end += 1
    return [each for each in instructions[index + 1 : end] if each.opname != "PUSH_NULL"]


def _loads_of_owner(instructions: list[dis.Instruction], index: int) -> list[dis.Instruction]:
    """The instructions that load the object whose method `next` is called."""
    begin = index
    while begin > 0 and instructions[begin - 1].opname.startswith(_ATTRIBUTES):
        begin -= 1
    return instructions[max(begin - 1, 0) : index]


def _names(each: dis.Instruction) -> tuple[str, ...]:
    """The variables that an instruction loads: an instruction of Python 3.13 may load two."""
    if not each.opname.startswith(_VARIABLES):
        return ()
    return each.argval if isinstance(each.argval, tuple) else (str(each.argval),)


def _variables(frame: FrameType, code: CodeType, names: set[str]) -> Callable[[str], Any]:
    """The values of variables in a frame.

    Until Python 3.12 the dictionary `f_locals` keeps a function's variables alive, so this clears it. A function that
    calls `locals()` may use the same dictionary, so its variables stay unknown.
    """
    own: dict[str, Any] = {}
    if not code.co_flags & inspect.CO_OPTIMIZED:
        own = frame.f_locals
    elif sys.version_info >= (3, 13) or not {"locals", "vars"} & set(code.co_names):
        known = frame.f_locals
        own = {name: known.get(name) for name in names if name in known}
        if sys.version_info < (3, 13):
            known.clear()
    return lambda name: own[name] if name in own else frame.f_globals.get(name)


def _values(loads: list[dis.Instruction], find: Callable[[str], Any]) -> list[Any]:
    """The values that an expression loads, and `None` for each other part of the expression."""
    values: list[Any] = []
    for each in loads:
        if each.opname.startswith(_ATTRIBUTES) and values:
            values[-1] = _member(values[-1], each.argval)
        else:
            values += [find(name) for name in _names(each)] or [None]
    return values


def _member(owner: Any, name: str) -> Any:
    """An attribute of an object, found without running code of the script."""
    if owner is None or isinstance(owner, _Member):
        return None
    try:
        own = vars(owner)
    except TypeError:
        own = {}
    if name in own:
        return own[name]
    return _Member(owner, name, inspect.getattr_static(type(owner), name, None))


def _described(value: Any) -> Optional[str]:
    """The name to report for a loader; `None` if the value is no loader."""
    if isinstance(value, _Member):
        owner = type(value.owner)
        if inspect.isgeneratorfunction(value.value) or (_is_loader(owner) and inspect.isroutine(value.value)):
            return None if owner.__module__.partition(".")[0] in _PLAIN else f"{owner.__name__}.{value.name}()"
        return None
    if isinstance(value, GeneratorType) or inspect.isgeneratorfunction(value):
        return None if _is_of_library(value) else f"{value.__name__}()"
    if value is None or isinstance(value, ModuleType):
        return None
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__.partition(".")[0] in PROGRESS:
        return None if kind is value else _described(getattr(value, "iterable", None))
    return kind.__name__ if _is_loader(kind) else None


def _is_of_library(generator: Any) -> bool:
    """True for generators of torch and of progress bars, such as `rich.progress.track`."""
    module = str(inspect.getmodule(generator) and inspect.getmodule(generator).__name__)  # type: ignore[union-attr]
    return module.partition(".")[0] in (*_PLAIN, *PROGRESS)


def _is_loader(kind: type) -> bool:
    is_iterable = any(hasattr(kind, name) for name in ("__iter__", "__next__"))
    return is_iterable and kind.__module__.partition(".")[0] not in _PLAIN
