"""What the stack of a thread says: the line of the script that it is in, and what for."""

from __future__ import annotations

import os
import sys
from itertools import accumulate, chain, repeat, starmap, takewhile, tee
from operator import attrgetter, itemgetter
from types import CodeType, FrameType
from typing import Any, Optional

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as dataloader_module
from torch.utils.data._utils import fetch as fetching
from torch.utils.data._utils import worker as working

from gputune._hook import call_sites
from gputune._hook.call_sites import OURS, is_library
from gputune._hook.dataset_watch import DatasetWatch
from gputune._hook.line_table import EVALUATION, Place, Seen
from gputune._hook.optimizers import Optimizers

#: Frames that are looked at: below them recursion is the same line again.
_DEEPEST = 256
#: Files whose owner is remembered, and stacks of which it is remembered what they say.
_MOST_FILES, _MOST_STACKS = 4096, 2048
#: Files of torch that stand between a loader and its data set.
_FETCHING = (os.path.abspath(fetching.__file__), os.path.abspath(working.__file__))

#: The loop's own code.
LOOP = "loop"
DATA_WAIT = "data_wait"
#: A data set at work, in whatever process.
LOADING = "loading"
COLLATING = "collating"
#: A function of torch that is no phase: a loss, clipping, zeroing gradients.
TORCH = "torch"
#: What gputune does itself, such as to report steps.
HOOK = "gputune"
#: Writing one, with whatever that calls.
CHECKPOINT = "checkpoint"
#: A worker that waits for what to load, or hands over what it has loaded.
IDLE = "idle"

_SCRIPT, _LIBRARY, _HOOK = range(3)
_owners: dict[str, int] = {}

#: A function's code and the line of it that is being run.
Point = tuple[CodeType, int]


def snapshot(thread: int) -> list[tuple[FrameType, int]]:
    """The stack of a thread and the lines that are being run, the innermost first.

    All of it happens in C: between two instructions of Python the interpreter may let the other thread run, which would change
    its stack under our eyes. So no frame is asked for its code here: that is an event for audit hooks, which are Python.
    """
    frame = map(itemgetter(thread), starmap(sys._current_frames, ((),)))
    frames: Any = accumulate(chain(frame, repeat("f_back", _DEEPEST)), getattr)
    kept, asked = tee(takewhile(bool, frames))
    return list(zip(kept, map(attrgetter("f_lineno"), asked)))


def _points(stack: list[tuple[FrameType, int]]) -> list[Point]:
    return [(frame.f_code, line or frame.f_code.co_firstlineno) for frame, line in stack]


def _owner(code: CodeType) -> int:
    path = code.co_filename
    owner = _owners.get(path)
    if owner is None:
        if len(_owners) >= _MOST_FILES:  # a script that makes code as it goes
            _owners.clear()
        owner = _HOOK if path.startswith(OURS) else _LIBRARY
        if owner == _LIBRARY and (not is_library(path) or _is_beside_main(path)):
            owner = _SCRIPT
        _owners[path] = owner
    return owner


def _is_beside_main(path: str) -> bool:
    """Whether a file is in the package that was started by `python -m`, which may be installed like a library."""
    main = sys.modules.get("__main__")
    package, file = getattr(main, "__package__", None), getattr(main, "__file__", None)
    return bool(package) and bool(file) and path.startswith(os.path.dirname(os.path.abspath(str(file))) + os.sep)


def _place(point: Point) -> Place:
    code, line = point
    return Place(code.co_filename, line, getattr(code, "co_qualname", code.co_name))


def _seen(kind: str, stack: list[Point], common: int = 0) -> Seen:
    """What a stack says, the outermost first, of which the first few are where the steps are made."""
    owners = [_owner(code) for code, _ in stack]
    at: Optional[int] = common - 1
    if common == 0 or owners[common - 1] != _SCRIPT:
        inner = (at for at in range(common, len(stack)) if owners[at] == _SCRIPT)
        outer = (at for at in range(common - 1, -1, -1) if owners[at] == _SCRIPT)
        at = next(inner, next(outer, None))
    if at is None:  # a library does it all: the first of its functions has the name that people know
        known = (at for at in range(len(stack)) if owners[at] == _LIBRARY)
        first = next((at for at in known if stack[at][0].co_filename not in _FETCHING), None)
        return Seen(kind, None if first is None else _place(stack[first]), None, "")
    site = _place(stack[at])
    last = max(at for at in range(at, len(stack)) if owners[at] == _SCRIPT)
    leaf = _place(stack[last])
    callee = next((code for at, (code, _) in enumerate(stack) if at > last and owners[at] == _LIBRARY), None)
    return Seen(kind, site, None if leaf == site else leaf, "" if callee is None else _name(callee))


def _is_in_torch(stack: list[Point]) -> bool:
    """Whether the script has called a function of torch that computes, the innermost function first."""
    callee = ""
    for code, _ in stack:
        if _owner(code) == _SCRIPT:
            break
        callee = code.co_filename
    return callee.startswith(call_sites.TORCH) and not callee.startswith(call_sites.TORCH + "utils/")


def _name(code: CodeType) -> str:
    folder, file = os.path.split(code.co_filename)
    module = os.path.basename(folder) if file == "__init__.py" else file.rpartition(".")[0]
    return f"{module}.{code.co_name}"


def _inner(function: Any, name: str) -> CodeType:
    """The code of a function that another one makes."""
    codes = (constant for constant in function.__code__.co_consts if isinstance(constant, CodeType))
    return next(code for code in codes if code.co_name == name)


#: Names of the code around calls that are counted (`call_sites`).
_CALLS = ("logging", "sync")
#: The function of the hook that passes a script's `open` on (`logs`).
_PASSES_ON = "open"

#: By the identity of code, which is quicker than its hash: what stands around a data set.
_AT_WORK = {id(DatasetWatch.fetch.__code__): LOADING, id(DatasetWatch.collate.__code__): COLLATING}


class _Stacks:
    """What stacks say, remembered: most looks find what others have found."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._known: dict[Any, tuple[Seen, list[Any]]] = {}

    def seen(self) -> Seen:
        """What the thread is at."""
        stack = snapshot(self._thread)
        state = self._state()
        modules = list(map(attrgetter("f_globals"), map(itemgetter(0), stack)))
        # A line of a module says which function it is in, and is had for less.
        key = (state, tuple(map(id, modules)), tuple(map(itemgetter(1), stack)))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_STACKS:
                self._known.clear()
            # The modules are kept with it, so that nothing else has their identity.
            known = self._known[key] = (self._read(_points(stack), state), modules)
        return known[0]

    def _state(self) -> Any:
        """What else is to be known."""

    def _read(self, stack: list[Point], state: Any) -> Seen:
        raise NotImplementedError


class WorkerStacks(_Stacks):
    """Those of a loader's worker."""

    def _read(self, stack: list[Point], state: Any) -> Seen:
        for depth, (code, _) in enumerate(stack):
            if id(code) in _AT_WORK:
                return _seen(_AT_WORK[id(code)], stack[:depth][::-1])
            if code.co_name == "_worker_loop":
                break
        return Seen(IDLE, None, None, "")


class TrainingStacks(_Stacks):
    """Those of the thread that trains. To be made by it at the end of a step: by that it is known where the loop is."""

    def __init__(self, thread: int, hook: Any) -> None:
        super().__init__(thread)
        self._hook = hook
        # These are the hook's own functions, or those that it has put in the place of torch's.
        parts: dict[str, Any] = {
            "forward": hook.modules.train,
            EVALUATION: hook.modules.evaluate,
            "backward": torch.autograd.backward,
            DATA_WAIT: dataloader_module._BaseDataLoaderIter.__next__,
            "epoch": DataLoader.__iter__,
            CHECKPOINT: torch.save,
            HOOK: hook.steps.end_step,
        }
        found = ((kind, getattr(function, "__code__", None)) for kind, function in parts.items())
        self._parts = {id(code): kind for kind, code in found if code is not None}
        self._parts[id(_inner(Optimizers._around_step, "step"))] = "optimizer"
        self._parts[id(_inner(Optimizers._around_closure, "run"))] = LOOP
        self._kept = parts
        stack = [code for code, _ in _points(snapshot(thread))]
        outside = next((at for at, code in enumerate(stack) if _owner(code) != _HOOK), len(stack))
        self._loop = stack[outside:][::-1]

    def _state(self) -> Any:
        return self._hook.loaders.is_for_training

    def _read(self, stack: list[Point], state: Any) -> Seen:
        kind = cut = None
        for depth, (code, _) in enumerate(stack):
            part = self._parts.get(id(code)) or self._call(stack, depth)
            if part == DATA_WAIT:
                kind = DATA_WAIT if state else EVALUATION
                if state and cut is not None:  # the data set is at work in this process
                    return _seen(_AT_WORK[id(stack[cut][0])], stack[:cut][::-1])
            elif part is not None and (kind is None or part == CHECKPOINT):  # writes to its file are the checkpoint's
                kind = part
            if cut is None and id(code) in _AT_WORK:
                cut = depth
        kind = kind or (TORCH if _is_in_torch(stack) else LOOP)
        stack = stack[::-1]
        return _seen(kind, stack, self._common(stack))

    @staticmethod
    def _call(stack: list[Point], depth: int) -> Optional[str]:
        """The kind of a call that is counted; those of the hook itself are not."""
        code = stack[depth][0]
        if code.co_name not in _CALLS or _owner(code) != _HOOK:
            return None
        caller = next((outer for outer, _ in stack[depth + 1 :] if outer.co_name != _PASSES_ON), None)
        return HOOK if caller is not None and _owner(caller) == _HOOK else code.co_name

    def _common(self, stack: list[Point]) -> int:
        """How many of the functions are those in which the steps are made."""
        pairs = enumerate(zip(stack, self._loop))
        return next((at for at, (point, code) in pairs if point[0] is not code), min(len(stack), len(self._loop)))

