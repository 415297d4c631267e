"""What the stack of a thread says: the line of the script that it is in, and what for."""

from __future__ import annotations

import os
import sys
from itertools import accumulate, chain, repeat, starmap, takewhile, tee
from operator import attrgetter, itemgetter
from types import CodeType, FrameType
from typing import Any, NamedTuple, Optional

from torch.utils.data._utils import fetch as fetching
from torch.utils.data._utils import worker as working

from gputune._hook.call_sites import OURS, is_library
from gputune._hook.dataset_watch import DatasetWatch
from gputune._hook.line_table import Place, Seen

#: Frames that are looked at: below them recursion is the same line again.
_DEEPEST = 256
#: Files whose owner is remembered, and stacks of which it is remembered what they say.
_MOST_FILES, _MOST_STACKS = 4096, 2048
#: Files of torch that stand between a loader and its data set.
_FETCHING = (os.path.abspath(fetching.__file__), os.path.abspath(working.__file__))

#: A data set at work, in whatever process.
LOADING = "loading"
COLLATING = "collating"
#: A worker that waits for what to load, or hands over what it has loaded.
_IDLE = "idle"

#: Whose code a function is.
SCRIPT, LIBRARY, OURSELVES = range(3)
_owners: dict[str, int] = {}

#: A function's code and the line of it that is being run.
Point = tuple[CodeType, int]


class Look(NamedTuple):
    """What a stack says."""

    seen: Seen
    if_held: Optional[Seen] = None
    """The same where the thread holds the interpreter's lock, and so runs Python; nothing where that makes no difference."""


def snapshot(thread: int) -> list[tuple[FrameType, int]]:
    """The stack of a thread and the lines that are being run, the innermost first.

    All of it happens in C: between two instructions of Python the interpreter may let the other thread run, which would change
    its stack under our eyes. So no frame is asked for its code here: that is an event for audit hooks, which are Python.
    """
    frame = map(itemgetter(thread), starmap(sys._current_frames, ((),)))
    frames: Any = accumulate(chain(frame, repeat("f_back", _DEEPEST)), getattr)
    kept, asked = tee(takewhile(bool, frames))
    return list(zip(kept, map(attrgetter("f_lineno"), asked)))


def points_of(stack: list[tuple[FrameType, int]]) -> list[Point]:
    """The functions of a snapshot with their lines."""
    return [(frame.f_code, line or frame.f_code.co_firstlineno) for frame, line in stack]


def owner_of(code: CodeType) -> int:
    """Whose a function is."""
    path = code.co_filename
    owner = _owners.get(path)
    if owner is None:
        if len(_owners) >= _MOST_FILES:  # a script that makes code as it goes
            _owners.clear()
        owner = OURSELVES if path.startswith(OURS) else LIBRARY
        if owner == LIBRARY and (not is_library(path) or _is_beside_main(path)):
            owner = SCRIPT
        _owners[path] = owner
    return owner


def _is_beside_main(path: str) -> bool:
    """Whether a file is in the package that was started by `python -m`, which may be installed like a library."""
    main = sys.modules.get("__main__")
    package, file = getattr(main, "__package__", None), getattr(main, "__file__", None)
    return bool(package) and bool(file) and path.startswith(os.path.dirname(os.path.abspath(str(file))) + os.sep)


def place_of(point: Point) -> Place:
    """The line, and the function that it is in."""
    code, line = point
    return Place(code.co_filename, line, getattr(code, "co_qualname", code.co_name))


def reading(kind: str, stack: list[Point], common: int = 0) -> Seen:
    """What a stack says, the outermost first, of which the first few are where the steps are made."""
    owners = [owner_of(code) for code, _ in stack]
    at: Optional[int] = common - 1
    if common == 0 or owners[common - 1] != SCRIPT:
        inner = (at for at in range(common, len(stack)) if owners[at] == SCRIPT)
        outer = (at for at in range(common - 1, -1, -1) if owners[at] == SCRIPT)
        at = next(inner, next(outer, None))
    if at is None:  # a library does it all: the first of its functions has the name that people know
        known = (at for at in range(len(stack)) if owners[at] == LIBRARY)
        first = next((at for at in known if stack[at][0].co_filename not in _FETCHING), None)
        return Seen(kind, None if first is None else place_of(stack[first]), None, "")
    site = place_of(stack[at])
    last = max(at for at in range(at, len(stack)) if owners[at] == SCRIPT)
    leaf = place_of(stack[last])
    callee = next((code for at, (code, _) in enumerate(stack) if at > last and owners[at] == LIBRARY), None)
    return Seen(kind, site, None if leaf == site else leaf, "" if callee is None else _name(callee))


def _name(code: CodeType) -> str:
    folder, file = os.path.split(code.co_filename)
    module = os.path.basename(folder) if file == "__init__.py" else file.rpartition(".")[0]
    return f"{module}.{code.co_name}"


#: By the identity of code, which is quicker than its hash: what stands around a data set.
AT_WORK = {id(DatasetWatch.fetch.__code__): LOADING, id(DatasetWatch.collate.__code__): COLLATING}


class Stacks:
    """What stacks say, remembered: most looks find what others have found."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._known: dict[Any, tuple[Look, list[Any]]] = {}

    def seen(self) -> Look:
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
            known = self._known[key] = (self._read(points_of(stack), state), modules)
        return known[0]

    def _state(self) -> Any:
        """What else is to be known."""

    def _read(self, stack: list[Point], state: Any) -> Look:
        raise NotImplementedError


class WorkerStacks(Stacks):
    """Those of a loader's worker."""

    def _read(self, stack: list[Point], state: Any) -> Look:
        for depth, (code, _) in enumerate(stack):
            if id(code) in AT_WORK:
                return Look(reading(AT_WORK[id(code)], stack[:depth][::-1]))
            if code.co_name == "_worker_loop":
                break
        return Look(Seen(_IDLE, None, None, ""))
