"""Reads the stack of a thread: the script's line that it runs, and the kind of work."""

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

#: Most frames of a stack: a deeper stack is recursion, which repeats the same lines.
_DEEPEST = 256
#: Most cached file owners, and most cached stacks.
_MOST_FILES, _MOST_STACKS = 4096, 2048
#: Files of torch between a loader and its dataset.
_FETCHING = (os.path.abspath(fetching.__file__), os.path.abspath(working.__file__))

#: A dataset loads or collates samples, in any process.
LOADING = "loading"
COLLATING = "collating"
#: A worker that waits for indices, or hands over a batch.
_IDLE = "idle"

#: Owners of code, and the owner of each file that was looked up.
SCRIPT, LIBRARY, OURSELVES = range(3)
_owners: dict[str, int] = {}

#: A frame, its current line and the offset of its current instruction.
Frame = tuple[FrameType, int, int]
#: A function's code and its current line.
Point = tuple[CodeType, int]


class Look(NamedTuple):
    """The meaning of a stack."""

    seen: Seen
    if_held: Optional[Seen] = None
    """The meaning if the thread holds the interpreter's lock, and so runs Python; `None` if it is the same."""


def snapshot(thread: int) -> list[Frame]:
    """The stack of a thread with the current lines and instructions, the innermost first.

    All work happens in C: between two Python instructions the other thread may run and change its stack. So this does
    not read `f_code`: that raises an audit event, and audit hooks are Python.
    """
    frame = map(itemgetter(thread), starmap(sys._current_frames, ((),)))
    frames: Any = accumulate(chain(frame, repeat("f_back", _DEEPEST)), getattr)
    kept, lines, instructions = tee(takewhile(bool, frames), 3)
    return list(zip(kept, map(attrgetter("f_lineno"), lines), map(attrgetter("f_lasti"), instructions)))


def points_of(stack: list[Frame]) -> list[Point]:
    """The functions of a snapshot with their lines."""
    return [(frame.f_code, line or frame.f_code.co_firstlineno) for frame, line, _ in stack]


def owner_of(code: CodeType) -> int:
    """The owner of a function."""
    path = code.co_filename
    owner = _owners.get(path)
    if owner is None:
        if len(_owners) >= _MOST_FILES:  # a script that generates code has ever more files
            _owners.clear()
        owner = OURSELVES if path.startswith(OURS) else LIBRARY
        if owner == LIBRARY and (not is_library(path) or _is_beside_main(path)):
            owner = SCRIPT
        _owners[path] = owner
    return owner


def _is_beside_main(path: str) -> bool:
    """True if a file is in the package started by `python -m`, which may be installed like a library."""
    main = sys.modules.get("__main__")
    package, file = getattr(main, "__package__", None), getattr(main, "__file__", None)
    return bool(package) and bool(file) and path.startswith(os.path.dirname(os.path.abspath(str(file))) + os.sep)


def place_of(point: Point) -> Place:
    """The line and its function."""
    code, line = point
    return Place(code.co_filename, line, getattr(code, "co_qualname", code.co_name))


def reading(kind: str, stack: list[Point], common: int = 0) -> Seen:
    """The meaning of a stack, which begins with the outermost function.

    The first `common` functions are the training loop; 0 for a stack without one, such as in a worker.
    """
    owners = [owner_of(code) for code, _ in stack]
    at: Optional[int] = common - 1
    if common == 0 or owners[common - 1] != SCRIPT:
        inner = (at for at in range(common, len(stack)) if owners[at] == SCRIPT)
        outer = (at for at in range(common - 1, -1, -1) if owners[at] == SCRIPT)
        at = next(inner, next(outer, None))
    if at is None:  # only library code: its outermost function is the public one
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


#: Functions around a dataset, keyed by the identity of their code, which is faster than its hash.
AT_WORK = {id(DatasetWatch.fetch.__code__): LOADING, id(DatasetWatch.collate.__code__): COLLATING}


class Stacks:
    """Reads stacks with a cache, as most samples find a known stack."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._known: dict[Any, tuple[Look, list[Any]]] = {}

    def seen(self) -> Look:
        """The current work of the thread."""
        stack = snapshot(self._thread)
        state = self._state(stack)
        modules = list(map(attrgetter("f_globals"), map(itemgetter(0), stack)))
        # Module and line identify the function, and are cheaper to read.
        key = (state, tuple(map(id, modules)), tuple(map(itemgetter(1), stack)))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_STACKS:
                self._known.clear()
            # Keeping the modules alive keeps their identities unique.
            known = self._known[key] = (self._read(points_of(stack), state), modules)
        return known[0]

    def _state(self, stack: list[Frame]) -> Any:
        """The state on which the meaning of a stack also depends. By default none."""

    def _read(self, stack: list[Point], state: Any) -> Look:
        raise NotImplementedError


class WorkerStacks(Stacks):
    """Reads the stacks of a loader's worker."""

    def _read(self, stack: list[Point], state: Any) -> Look:
        for depth, (code, _) in enumerate(stack):
            if id(code) in AT_WORK:
                return Look(reading(AT_WORK[id(code)], stack[:depth][::-1]))
            if code.co_name == "_worker_loop":
                break
        return Look(Seen(_IDLE, None, None, ""))
