"""Reads the stack of the training thread: the current part of the step, and the line of the script."""

from __future__ import annotations

import sys
from itertools import dropwhile, takewhile
from types import CodeType, FrameType
from typing import Any, Optional

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as dataloader_module

from gputune._hook import asked_iterators, call_sites
from gputune._hook.line_table import EVALUATION, Seen
from gputune._hook.optimizers import Optimizers
from gputune._hook.stacks import (
    AT_WORK,
    OURSELVES,
    SCRIPT,
    Frame,
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
DATA_WAIT = asked_iterators.DATA_WAIT
#: The sampler chooses the samples of the next batch, in the training process even if the loader has workers.
CHOOSING = "choosing"
#: A function of torch that is no phase: a loss, clipping, zeroing gradients.
TORCH = "torch"
#: gputune's own work, such as reporting steps.
HOOK = "gputune"
#: Writing a checkpoint, with all calls inside.
CHECKPOINT = "checkpoint"

#: The script's own Python within a computing part: a layer, a hook, a function with its own gradients.
PYTHON = "python"
_COMPUTING = ("forward", "backward", "optimizer")
#: Parts of torch that run generated code. Generated code would look like the script's, because its file is in no
#: library's folder.
_COMPILED = tuple(call_sites.TORCH + name for name in ("_dynamo/", "_inductor/", "_functorch/"))

#: Number of functions called within the training loop whose current instruction is also read.
_BELOW = 2
#: Names of the wrappers around counted calls (`call_sites`).
_CALLS = ("logging", "sync")
#: The hook's function that forwards a script's `open` (`logs`).
_PASSES_ON = "open"


def _inner(function: Any, name: str) -> CodeType:
    """The code of a function that `function` defines inside."""
    codes = (constant for constant in function.__code__.co_consts if isinstance(constant, CodeType))
    return next(code for code in codes if code.co_name == name)


def _is_in_torch(stack: list[Point]) -> bool:
    """True if the script has called a function of torch that computes. The stack is innermost first."""
    callee = ""
    for code, _ in stack:
        if owner_of(code) == SCRIPT:
            break
        callee = code.co_filename
    return callee.startswith(call_sites.TORCH) and not callee.startswith(call_sites.TORCH + "utils/")


def _own_python(stack: list[Point]) -> Optional[Seen]:
    """The running line of a script's function that torch has called; `None` if torch itself runs."""
    if _is_in_torch(stack) or any(code.co_filename.startswith(_COMPILED) for code, _ in stack):
        return None
    inner = dropwhile(lambda point: owner_of(point[0]) != SCRIPT, stack)
    own = [place_of(point) for point in takewhile(lambda point: owner_of(point[0]) == SCRIPT, inner)]
    return Seen(PYTHON, own[-1], own[0] if len(own) > 1 else None, "") if own else None


class TrainingStacks(Stacks):
    """Reads the stacks of the training thread, which must create this at the end of a step, to locate the loop."""

    def __init__(self, thread: int, hook: Any) -> None:
        super().__init__(thread)
        self._hook = hook
        # The hook's own functions, and its replacements of torch's functions.
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
        self._kept = parts  # keeps the functions alive, so that the identities of their code stay unique
        #: Functions that work for the loader in this process.
        chooses = getattr(getattr(dataloader_module._BaseDataLoaderIter, "_next_index", None), "__code__", None)
        self._at_work = {**AT_WORK, id(chooses): CHOOSING}
        stack = [code for code, _ in points_of(snapshot(thread))]
        outside = next((at for at, code in enumerate(stack) if owner_of(code) != OURSELVES), len(stack))
        self._loop = stack[outside:][::-1]
        #: Generators that contain training steps, so they give no batches.
        self._training: dict[int, CodeType] = {}

    def _state(self, stack: list[Frame]) -> Any:
        """The state on which the meaning of a stack also depends.

        It holds whether batches are for training. If no DataLoader trains, it also holds whether the script evaluates,
        the current instructions of the outermost functions, and the number of generators known to train.
        """
        loaders = self._hook.loaders
        if loaders.training_number is not None:
            return loaders.is_for_training, False, None, 0
        outermost = stack[-len(self._loop) - _BELOW :]
        instructions = tuple(instruction for _, _, instruction in reversed(outermost))
        return loaders.is_for_training, self._hook.outside.is_evaluating, instructions, len(self._training)

    def _read(self, stack: list[Point], state: Any) -> Look:
        kind = cut = None
        is_for_training, is_evaluating, instructions, _ = state
        at_part = 0
        for depth, (code, _) in enumerate(stack):
            part = self._parts.get(id(code)) or self._call(stack, depth)
            if part == DATA_WAIT:
                kind = DATA_WAIT if is_for_training else EVALUATION
                if is_for_training and cut is not None:  # the dataset or a sampler works in this process
                    return Look(reading(self._at_work[id(stack[cut][0])], stack[:cut][::-1]))
            elif part is not None and (kind is None or part == CHECKPOINT):  # a checkpoint includes its writes
                kind, at_part = part, depth
            if cut is None and id(code) in self._at_work:
                cut = depth
        if_held = _own_python(stack[:at_part]) if kind in _COMPUTING else None
        is_in_torch = _is_in_torch(stack)
        stack = stack[::-1]
        common = self._common(stack)
        if kind is None and instructions is not None:
            instruction = instructions[common - 1] if 0 < common <= len(instructions) else None
            seen = asked_iterators.waiting(stack, common, instruction)
            if seen is not None:
                return Look(seen._replace(kind=EVALUATION) if is_evaluating else seen)
        return Look(reading(kind or (TORCH if is_in_torch else LOOP), stack, common), if_held)

    def note_step(self, is_marked: bool) -> None:
        """Notes the generators that run at the end of a step."""
        frame: Optional[FrameType] = sys._getframe(1)
        while frame is not None:
            if asked_iterators.is_generator(frame.f_code):
                self._training[id(frame.f_code)] = frame.f_code
            frame = frame.f_back

    @staticmethod
    def _call(stack: list[Point], depth: int) -> Optional[str]:
        """The kind of a counted call; the hook's own calls have the kind `HOOK`."""
        code = stack[depth][0]
        if code.co_name not in _CALLS or owner_of(code) != OURSELVES:
            return None
        caller = next((outer for outer, _ in stack[depth + 1 :] if outer.co_name != _PASSES_ON), None)
        return HOOK if caller is not None and owner_of(caller) == OURSELVES else code.co_name

    def _common(self, stack: list[Point]) -> int:
        """The number of outermost functions that belong to the training loop."""
        pairs = enumerate(zip(stack, self._loop))
        common = next((at for at, (point, code) in pairs if point[0] is not code), min(len(stack), len(self._loop)))
        training = (at + 1 for at, (code, _) in enumerate(stack) if id(code) in self._training)
        return max((common, *training))

