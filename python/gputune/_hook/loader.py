"""Which DataLoader trains, what it yields, and how long the training waits for it."""

from __future__ import annotations

import inspect
import time
import weakref
from collections import deque
from typing import Any, Optional

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as dataloader_module

from gputune._hook.batches import samples_in
from gputune._hook.loader_settings import LoaderSettings, is_training
from gputune._hook.marks import Marks
from gputune._hook.patching import Function, replace
from gputune._hook.session import Session
from gputune._hook.stopping import Stopping

#: Batches that a wrapper may fetch ahead of the step that uses them: Accelerate and Lightning fetch one.
_LONGEST_LOOKAHEAD = 2


class LoaderState:
    """One DataLoader, for as long as it or an iterator of it is there."""

    def __init__(self, loader: Any, has_evidence: bool) -> None:
        self.loader = weakref.ref(loader)
        self.has_evidence = has_evidence  # its arguments say that it is for training
        self.touched: set[str] = set()
        self.reasons: dict[str, str] = {}
        self.before: dict[str, Any] = {}  # attributes to give back, should it turn out to be for evaluation
        self.iterations = 0
        self.pulls = 0  # batches since the last step
        self.pulled_at = 0  # order among the loaders
        self.wait_seconds = 0.0  # since the last step
        self.queue: deque[Optional[int]] = deque()  # samples of batches that no step has used yet
        self.batch_size: Optional[int] = None


class Loaders:
    """All DataLoaders of the process. The training loader is the one that yielded last before the first step."""

    def __init__(self, session: Session, marks: Marks, stopping: Stopping) -> None:
        self._session = session
        self._marks = marks
        self._stopping = stopping
        self._settings = LoaderSettings(session)
        self._states: weakref.WeakKeyDictionary[Any, LoaderState] = weakref.WeakKeyDictionary()
        self._alive: weakref.WeakSet[LoaderState] = weakref.WeakSet()
        self._training: Optional[LoaderState] = None
        self._pulls = 0
        self._lookahead: Optional[int] = None
        self._is_first_step_over = False

    def install(self) -> None:
        replace(DataLoader, "__init__", self._around_init)
        replace(DataLoader, "__iter__", self._around_iter)
        replace(dataloader_module._BaseDataLoaderIter, "__next__", self._around_next)

    def _around_init(self, original: Function) -> Function:
        signature = inspect.signature(original)

        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            try:
                given = dict(signature.bind(loader, *args, **kwargs).arguments)
                del given["self"]
            except (TypeError, KeyError):
                return original(loader, *args, **kwargs)  # whose error the user should see
            state = self._add(loader, is_training(given))
            if state.has_evidence and self._settings.targets:
                self._settings.arguments(given, state.touched, state.reasons)
            original(loader, **given)

        return __init__

    def _add(self, loader: Any, has_evidence: bool) -> LoaderState:
        state = self._states[loader] = LoaderState(loader, has_evidence)
        self._alive.add(state)
        return state

    def _around_iter(self, original: Function) -> Function:
        def __iter__(loader: Any) -> Any:
            state = self._states.get(loader)
            if state is None:
                state = self._add(loader, False)
            self._before_iteration(loader, state)
            iterator = original(loader)
            iterator._gputune = state
            return iterator

        return __iter__

    def _around_next(self, original: Function) -> Function:
        clock = time.perf_counter

        def __next__(iterator: Any) -> Any:
            state = iterator.__dict__.get("_gputune")
            if state is None:
                return original(iterator)
            begin = clock()
            self._stopping.between_steps(begin)
            batch = original(iterator)
            state.wait_seconds += clock() - begin
            self._pulls += 1
            state.pulled_at = self._pulls
            state.pulls += 1
            state.queue.append(samples_in(batch, state.batch_size))
            if len(state.queue) > 64:  # evaluation, or a loader that is only looked at
                state.queue.popleft()
            return batch

        return __next__

    def _before_iteration(self, loader: Any, state: LoaderState) -> None:
        state.iterations += 1
        if not self._is_first_step_over and not state.touched and self._may_train(state) and self._settings.targets:
            state.before = self._settings.attributes(loader, state.touched, state.reasons)
        sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        size = getattr(sampler, "batch_size", None)
        state.batch_size = size if isinstance(size, int) else None
        if not self._is_first_step_over:
            return
        if state is self._training:
            self._marks.note("epoch")
        elif not state.has_evidence:
            self._marks.note("evaluation")

    def _may_train(self, state: LoaderState) -> bool:
        """Without evidence in its arguments: gradients are wanted, and no other loader is known to be for training."""
        others = (other for other in self._alive if other is not state)
        return not state.has_evidence and torch.is_grad_enabled() and not any(other.has_evidence for other in others)

    def step(self, forwards: int) -> tuple[Optional[int], float]:
        """Samples of the step that ends now, where a loader gave them, and the seconds it waited for the loader.

        `forwards` is how often the training modules were called. Batches beyond that are for the next step where the
        first step showed that a wrapper fetches ahead.
        """
        training = self._current_training()
        if training is None:
            return None, 0.0
        wait_seconds = training.wait_seconds
        queue = training.queue
        used = min(len(queue), forwards) if forwards else len(queue)
        if self._lookahead is None:
            ahead = len(queue) - used
            self._lookahead = ahead if ahead <= _LONGEST_LOOKAHEAD else 0
        used = max(used, len(queue) - self._lookahead)
        sizes = [queue.popleft() for _ in range(used)]
        for state in self._alive:
            state.pulls = 0
            state.wait_seconds = 0.0
        if not sizes or any(size is None for size in sizes):
            return None, wait_seconds
        return sum(size for size in sizes if size is not None), wait_seconds

    def _current_training(self) -> Optional[LoaderState]:
        training = self._training
        if training is not None and (training.pulls or training.queue):
            return training
        pulling = [state for state in self._alive if state.pulls]
        if pulling:
            self._training = max(pulling, key=lambda state: state.pulled_at)
        return self._training

    def end_first_step(self) -> None:
        """Says which settings the training loader took; others that were only taken for it get theirs back."""
        self._is_first_step_over = True
        training = self._training
        for state in list(self._alive):
            loader = state.loader()
            if state is not training and state.before and loader is not None:
                self._settings.restore(loader, state.before)
                state.before = {}
        if training is None:
            return
        for target in self._settings.targets:
            if target in training.touched:
                self._session.apply(target)
            elif target in training.reasons:
                self._session.explain(target, training.reasons[target])
            else:
                self._session.explain(
                    target,
                    "the DataLoader that trains was not recognised as such before it was used; "
                    'make it with shuffle=True, or pass the setting to the script (apply = "arg", or gputune.config())',
                )
