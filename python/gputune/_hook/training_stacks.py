"""What the stack of the thread that trains says: the part of the step that it is in, and the line of the script."""

from __future__ import annotations

from itertools import dropwhile, takewhile
from types import CodeType
from typing import Any, Optional

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as dataloader_module

from gputune._hook import call_sites
from gputune._hook.line_table import EVALUATION, Seen
from gputune._hook.optimizers import Optimizers
from gputune._hook.stacks import (
    AT_WORK,
    OURSELVES,
    SCRIPT,
    Look,
    Point,
    Stacks,
    owner_of,
    place_of,
    points_of,
    reading,
    snapshot,
)

#: The loop's own code.
LOOP = "loop"
DATA_WAIT = "data_wait"
#: The sampler says which samples are the next batch; it is asked in the training process, whatever workers there are.
CHOOSING = "choosing"
#: A function of torch that is no phase: a loss, clipping, zeroing gradients.
TORCH = "torch"
#: What gputune does itself, such as to report steps.
HOOK = "gputune"
#: Writing one, with whatever that calls.
CHECKPOINT = "checkpoint"

#: The script's own Python within a part that computes: a layer, a hook, a function with gradients of its own.
PYTHON = "python"
_COMPUTING = ("forward", "backward", "optimizer")
#: What runs code that it has made itself, which is in no library's folder and keeps the interpreter's lock while it computes.
_COMPILED = tuple(call_sites.TORCH + name for name in ("_dynamo/", "_inductor/", "_functorch/"))

#: Names of the code around calls that are counted (`call_sites`).
_CALLS = ("logging", "sync")
#: The function of the hook that passes a script's `open` on (`logs`).
_PASSES_ON = "open"


def _inner(function: Any, name: str) -> CodeType:
    """The code of a function that another one makes."""
    codes = (constant for constant in function.__code__.co_consts if isinstance(constant, CodeType))
    return next(code for code in codes if code.co_name == name)


def _is_in_torch(stack: list[Point]) -> bool:
    """Whether the script has called a function of torch that computes, the innermost function first."""
    callee = ""
    for code, _ in stack:
        if owner_of(code) == SCRIPT:
            break
        callee = code.co_filename
    return callee.startswith(call_sites.TORCH) and not callee.startswith(call_sites.TORCH + "utils/")


def _own_python(stack: list[Point]) -> Optional[Seen]:
    """The line that runs of what torch has called, the innermost function first; nothing where torch itself runs."""
    if _is_in_torch(stack) or any(code.co_filename.startswith(_COMPILED) for code, _ in stack):
        return None
    inner = dropwhile(lambda point: owner_of(point[0]) != SCRIPT, stack)
    own = [place_of(point) for point in takewhile(lambda point: owner_of(point[0]) == SCRIPT, inner)]
    return Seen(PYTHON, own[-1], own[0] if len(own) > 1 else None, "") if own else None


class TrainingStacks(Stacks):
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
        #: What is at work for the loader in this process.
        chooses = getattr(getattr(dataloader_module._BaseDataLoaderIter, "_next_index", None), "__code__", None)
        self._at_work = {**AT_WORK, id(chooses): CHOOSING}
        stack = [code for code, _ in points_of(snapshot(thread))]
        outside = next((at for at, code in enumerate(stack) if owner_of(code) != OURSELVES), len(stack))
        self._loop = stack[outside:][::-1]

    def _state(self) -> Any:
        return self._hook.loaders.is_for_training

    def _read(self, stack: list[Point], state: Any) -> Look:
        kind = cut = None
        at_part = 0
        for depth, (code, _) in enumerate(stack):
            part = self._parts.get(id(code)) or self._call(stack, depth)
            if part == DATA_WAIT:
                kind = DATA_WAIT if state else EVALUATION
                if state and cut is not None:  # the data set or a sampler is at work in this process
                    return Look(reading(self._at_work[id(stack[cut][0])], stack[:cut][::-1]))
            elif part is not None and (kind is None or part == CHECKPOINT):  # writes to its file are the checkpoint's
                kind, at_part = part, depth
            if cut is None and id(code) in self._at_work:
                cut = depth
        if_held = _own_python(stack[:at_part]) if kind in _COMPUTING else None
        kind = kind or (TORCH if _is_in_torch(stack) else LOOP)
        stack = stack[::-1]
        return Look(reading(kind, stack, self._common(stack)), if_held)

    @staticmethod
    def _call(stack: list[Point], depth: int) -> Optional[str]:
        """The kind of a call that is counted; those of the hook itself are not."""
        code = stack[depth][0]
        if code.co_name not in _CALLS or owner_of(code) != OURSELVES:
            return None
        caller = next((outer for outer, _ in stack[depth + 1 :] if outer.co_name != _PASSES_ON), None)
        return HOOK if caller is not None and owner_of(caller) == OURSELVES else code.co_name

    def _common(self, stack: list[Point]) -> int:
        """How many of the functions are those in which the steps are made."""
        pairs = enumerate(zip(stack, self._loop))
        return next((at for at, (point, code) in pairs if point[0] is not code), min(len(stack), len(self._loop)))

