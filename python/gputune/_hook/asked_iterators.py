"""Recognises the time in which the training loop waits for an iterator that is no DataLoader.

Such an iterator comes from a library (DALI, FFCV), from a prefetcher that runs in threads, or from a generator of the
script. A `for` statement or `next()` in the loop asks it for a batch, so its frames are below the loop's frame.
"""

from __future__ import annotations

import dis
from inspect import CO_GENERATOR
from types import CodeType
from typing import NamedTuple, Optional

from gputune._hook.call_sites import TORCH
from gputune._hook.line_table import Seen
from gputune._hook.lines import WAITING
from gputune._hook.stacks import LOADING, SCRIPT, Point, owner_of, reading

DATA_WAIT = "data_wait"
#: Kinds of time outside of the phases of a step, and the kinds that are a wait for an iterator.
_OUTSIDE_PHASES = ("loop", "torch", "logging", "sync", "gputune", DATA_WAIT, LOADING)
_WAITS = (DATA_WAIT, LOADING)

#: Most functions whose instructions are cached.
_MOST_KNOWN = 512
_METHODS = ("__next__", "next", "__iter__")
_NAMES_OF_NEXT = ("next", "__next__")
#: Instructions without an effect of their own. They are left out, so that `GET_ITER` stands directly before `FOR_ITER`.
_BETWEEN = ("EXTENDED_ARG", "CACHE", "NOP")
#: Packages of progress bars, which pass batches on.
PROGRESS = ("tqdm", "rich", "fastprogress", "progressbar", "alive_progress")


class Loop(NamedTuple):
    """The instructions of a `for` statement."""

    begin: int
    """The offset of the instruction that makes the iterator."""
    body: int
    """The offset of the first instruction after the instruction that asks for the next item."""
    end: int
    """The offset after the statement."""
    position: int
    """The index in `Asking.instructions` of the instruction that makes the iterator."""


class Asking(NamedTuple):
    """The places of a function that ask an iterator."""

    instructions: list[dis.Instruction]
    loops: list[Loop]
    lines: frozenset[int]
    """Lines that ask, by a `for` or by `next`."""
    by_next: frozenset[int]
    """Lines that call `next`."""


_known: dict[CodeType, Asking] = {}


def asking(code: CodeType) -> Asking:
    """The places of a function that ask an iterator."""
    found = _known.get(code)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[code] = _read(code)
    return found


def _read(code: CodeType) -> Asking:
    starts = dict(dis.findlinestarts(code))
    placed: list[tuple[dis.Instruction, Optional[int]]] = []
    line: Optional[int] = code.co_firstlineno
    for each in dis.get_instructions(code):
        line = starts.get(each.offset, line)
        if each.opname not in _BETWEEN:
            placed.append((each, line))
    instructions = [each for each, _ in placed]
    loops, lines, by_next = [], set(), set()
    for index, (each, line) in enumerate(placed):
        if line is None:
            continue
        if each.opname == "FOR_ITER":
            lines.add(line)
            # The iterator of a comprehension is made elsewhere.
            if index > 0 and instructions[index - 1].opname == "GET_ITER" and index + 1 < len(instructions):
                begin, body = instructions[index - 1].offset, instructions[index + 1].offset
                loops.append(Loop(begin, body, each.argval, index - 1))
        elif each.opname in ("YIELD_FROM", "SEND"):
            lines.add(line)
        elif each.argval in _NAMES_OF_NEXT:
            by_next.add(line)
    return Asking(instructions, loops, frozenset(lines | by_next), frozenset(by_next))


def is_generator(code: CodeType) -> bool:
    return bool(code.co_flags & CO_GENERATOR)


def _is_iterator(code: CodeType) -> bool:
    return is_generator(code) or code.co_name in _METHODS


def _first(stack: list[Point], common: int, instruction: Optional[int]) -> Optional[int]:
    """The index of the first frame of the asked iterator; `None` if the loop asks no iterator.

    The index is the length of the stack if the iterator has no frames, such as an iterator in C.
    """
    caller = asking(stack[common - 1][0])
    if instruction is not None and any(loop.begin <= instruction < loop.body for loop in caller.loops):
        return common
    for at in range(common, len(stack)):
        code, line = stack[at - 1]
        if _is_iterator(stack[at][0]) and line in asking(code).by_next:
            return at
        if owner_of(stack[at][0]) != SCRIPT:
            break
    return None


def waiting(stack: list[Point], common: int, instruction: Optional[int]) -> Optional[Seen]:
    """The meaning of a stack in which the loop waits for an iterator; `None` if the loop does not wait.

    The stack begins with the outermost function. The first `common` functions are the training loop, and `instruction`
    is the current instruction of the last function of the loop, if known.
    """
    at = _first(stack, common, instruction) if common > 0 else None
    if at is None:
        return None
    # The first iterator may ask another iterator: progress bars, wrappers and the stages of a pipeline do.
    while at + 1 < len(stack) and _is_iterator(stack[at + 1][0]) and stack[at][1] in asking(stack[at][0]).lines:
        at += 1
    inner = stack[at:]
    if inner:
        path = inner[0][0].co_filename
        if any(f"/{package}/" in path for package in PROGRESS) or _is_of_model(path):
            return None
        waits = inner[-1][0].co_filename.startswith(WAITING)
        if not waits and any(owner_of(code) == SCRIPT for code, _ in inner):
            return reading(LOADING, inner)
    return reading(DATA_WAIT, stack, common)


def _is_of_model(path: str) -> bool:
    """True for torch's iterators that give no batches, such as the parameters of a model."""
    return path.startswith(TORCH) and not path.startswith(TORCH + "utils/data/")


def share(kinds: dict[str, float]) -> float:
    """The share of waiting for the iterator in the time outside of phases, from the seconds of each kind."""
    outside = sum(kinds.get(kind, 0.0) for kind in _OUTSIDE_PHASES)
    return sum(kinds.get(kind, 0.0) for kind in _WAITS) / outside if outside > 0 else 0.0
