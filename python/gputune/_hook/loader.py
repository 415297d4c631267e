"""Which DataLoader trains, what it yields, and how long the training waits for it."""

from __future__ import annotations

import time
import weakref
from collections import deque
from typing import Any, Callable, Optional

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

    def __init__(self, loader: Any, is_late: bool) -> None:
        self.loader = weakref.ref(loader)
        self.dataset = _reference(loader.dataset)
        self.dataset_type = type(loader.dataset)
        self.has_evidence = is_training(loader)  # its arguments say that it is for training
        self.has_gradients = False  # it was iterated with gradients on
        self.is_late = is_late  # made after the first step
        self.touched: set[str] = set()
        self.reasons: dict[str, str] = {}
        self.before: dict[str, Any] = {}  # attributes that were set, to give back should it turn out not to train
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
        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            state = self._add(loader)
            if state.has_evidence and (not state.is_late or self._has_dataset_of_training(state)):
                self._set(loader, state)

        return __init__

    def _add(self, loader: Any) -> LoaderState:
        state = self._states[loader] = LoaderState(loader, self._is_first_step_over)
        self._alive.add(state)
        return state

    def _set(self, loader: Any, state: LoaderState) -> None:
        if self._settings.targets and not state.before:
            state.before = self._settings.attributes(loader, state.touched, state.reasons)

    def _around_iter(self, original: Function) -> Function:
        def __iter__(loader: Any) -> Any:
            state = self._states.get(loader)
            if state is None:
                state = self._add(loader)
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
        state.has_gradients = state.has_gradients or torch.is_grad_enabled()
        if self._may_train(state):
            self._set(loader, state)
        sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        size = getattr(sampler, "batch_size", None)
        state.batch_size = size if isinstance(size, int) else None
        if not self._is_first_step_over:
            return
        if state is self._training or self._may_train(state):
            self._marks.note("epoch")
        elif not state.has_evidence or not torch.is_grad_enabled():
            self._marks.note("evaluation")

    def _may_train(self, state: LoaderState) -> bool:
        """Whether a loader that is iterated now trains, by what it is and not by what it yields.

        Before the first step: without evidence in its arguments, if gradients are wanted and no other loader has such
        evidence. Later: if it was made since, and in the way of the training loader; scripts make one for each epoch.
        """
        if not torch.is_grad_enabled():
            return False
        if self._is_first_step_over:
            return state.is_late and self._is_like_training(state)
        others = (other for other in self._alive if other is not state)
        return not state.has_evidence and not any(other.has_evidence for other in others)

    def _is_like_training(self, state: LoaderState) -> bool:
        training = self._training
        return (
            training is not None
            and state.has_evidence == training.has_evidence
            and state.dataset_type is training.dataset_type
        )

    def _has_dataset_of_training(self, state: LoaderState) -> bool:
        training = self._training
        dataset = state.dataset()
        return training is not None and dataset is not None and dataset is training.dataset()

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
        """Says which settings the training loader took; others that were taken for it get theirs back."""
        self._is_first_step_over = True
        training = self._training
        for state in list(self._alive):
            loader = state.loader()
            trains_too = state.has_evidence and state.has_gradients  # such as one that is zipped with it
            if state is not training and state.before and loader is not None and not trains_too:
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


def _reference(value: Any) -> Callable[[], Any]:
    """A weak reference, or a strong one to what takes none, such as a list."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value
