"""Finds the DataLoader that trains, its batches, and the time that training waits for it."""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from array import array
from collections import deque
from typing import Any, Callable, Optional

import torch
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data import dataloader as dataloader_module

from gputune import _client
from gputune._client import Reporter
from gputune._hook import dataset_watch, devices, lines, loader_kinds, renewal, samples, shards
from gputune._hook.batch_sizes import BatchSizes, why_not_read
from gputune._hook.batches import tensors_in
from gputune._hook.experiment import LOADER_ONLY, REPLAY, Experiment
from gputune._hook.facts import Facts
from gputune._hook.loader_only import LoaderOnly, SweepIterator
from gputune._hook.loader_settings import LoaderSettings, is_training
from gputune._hook.marks import Marks
from gputune._hook.outside import Outside
from gputune._hook.patching import Function, replace
from gputune._hook.replaying import Kept, ReplayIterator
from gputune._hook.session import CannotChange, Session
from gputune._hook.stopping import Stopping
from gputune._hook.timeline import Phases

#: Batches that a wrapper may fetch ahead of the step that uses them: Accelerate and Lightning fetch one.
_LONGEST_LOOKAHEAD = 2
#: Empty loaders before any batch, after which the config is rejected. A script that trains has fewer empty loaders.
_MOST_EMPTY = 16

_UNKNOWN = (
    "the DataLoader that trains was not recognised as such before it was used; "
    'make it with shuffle=True, or pass the setting to the script (apply = "arg", or gputune.config())'
)

_numbers = itertools.count()


class LoaderState:
    """The state of one DataLoader, kept as long as the loader or one of its iterators exists."""

    def __init__(self, loader: Any, is_late: bool, made_at: int) -> None:
        self.loader = weakref.ref(loader)
        self.dataset = _reference(loader.dataset)
        kind = type(loader.dataset)
        self.dataset_type = (kind.__module__, kind.__qualname__)  # names, as Keras makes a new class for each epoch
        self.has_evidence = is_training(loader)  # its arguments show that it is for training: its order is random
        self.has_gradients = False  # it was iterated with gradients on
        self.is_late = is_late  # made after the first step
        self.made_at = made_at  # the count of all loaders' batches at that time
        self.touched: set[str] = set()  # targets that were applied to the loader
        self.reasons: dict[str, str] = {}  # why a target could not be applied, by the target
        self.before: dict[str, Any] = {}  # old values, restored if the loader does not train
        self.iterations = 0
        self.pulls = 0  # batches since the last step
        self.pulled_at = 0  # the count of all loaders' batches at this loader's last batch
        self.wait_seconds = 0.0  # waiting in the thread that trains, since the last step
        self.aside_seconds = 0.0  # waiting in other threads, since the last step
        self.is_at_edge = False  # a training epoch after the first has begun, and its first batch is still to come
        self.queue: deque[Optional[int]] = deque()  # the number of samples of each batch that no step has used yet
        self.batch_size: Optional[int] = None
        self.is_sized = False  # its batch size can be set
        self.counter = samples.BatchCounter()
        self.sizes = BatchSizes()
        self.not_read = why_not_read(loader)
        self.skips = samples.Skips()
        self.said: dict[str, Any] = {}  # facts about the loader, which may be freed before its iterator
        self.number = next(_numbers)
        self.begun_at: Optional[float] = None  # the time when the first iteration began
        self.first_batch_seconds: Optional[float] = None
        self.batch: Optional[tuple[Optional[int], int, bool]] = None  # samples, bytes, pinning of the first batch
        self.iterator: Callable[[], Any] = lambda: None  # a reference to the newest iterator
        self.iterators: weakref.WeakSet[Any] = weakref.WeakSet()  # all iterators that the script holds
        self.kept: Optional[Kept] = None  # batches that are replayed
        self.parts: Optional[shards.Parts] = None  # set if the dataset itself must divide the samples among the workers
        self.numbers: Any = array("d", bytes(8 * dataset_watch.LENGTH))
        """The counters of `dataset_watch` (samples, seconds, bytes) for this loader in this process."""

    def begin_anew(self) -> None:
        """Resets the state before new settings. Batches that a wrapper has fetched ahead stay in the queue."""
        self.touched.clear()
        self.reasons.clear()
        self.before = {}
        self.counter, self.sizes = samples.BatchCounter(), BatchSizes()
        self.parts = None
        self.begun_at, self.first_batch_seconds, self.batch = time.perf_counter(), None, None


def _said(loader: Any) -> dict[str, Any]:
    """The facts from a loader's own attributes."""
    said: dict[str, Any] = {}
    say = said.__setitem__
    say("loader.workers", loader.num_workers)
    say("loader.pin_memory", bool(loader.pin_memory))
    say("loader.persistent_workers", bool(loader.persistent_workers))
    say("loader.dataset", type(loader.dataset).__name__)
    if loader.num_workers > 0:
        say("loader.prefetch_factor", loader.prefetch_factor)
    has_end = not _is_endless(loader)
    try:
        if has_end:
            say("loader.batches", len(loader))
    except Exception:  # an iterable dataset without a length, or a `__len__` that fails
        pass
    if type(loader.batch_sampler) is BatchSampler:
        say("loader.drop_last", bool(loader.drop_last))
        try:
            if has_end:
                say("loader.samples", len(loader.sampler))
        except Exception:  # a sampler without a length
            pass
    return said


def _is_endless(loader: Any) -> bool:
    """True if the sampler draws each sample many times, so that its length is no epoch: a round number of times."""
    try:
        return len(loader.sampler) > 100 * len(loader.dataset)
    except Exception:  # without a length
        return False


class Loaders:
    """All DataLoaders of the process. The training loader is the last to yield a batch before the first step.

    Zipped loaders count as a unit, represented by the first.
    """

    def __init__(
        self, session: Session, marks: Marks, stopping: Stopping, facts: Facts, phases: Phases, outside: Outside
    ) -> None:
        self.phases = phases
        self._outside = outside
        self.watch: Optional[dataset_watch.DatasetWatch] = None
        """The watch on datasets, if their times are measured."""
        self.largest: Any = None
        """The experiment `largest_batch`, if this probe is one."""
        self.is_for_training = True
        """True if the last requested batch is for training: evaluation has no gradients."""
        self._session = session
        self._facts = facts
        self._mode = None if session.experiment is None else session.experiment.mode
        self._marks = marks
        self._stopping = stopping
        self._settings = LoaderSettings(session)
        self._states: weakref.WeakKeyDictionary[Any, LoaderState] = weakref.WeakKeyDictionary()
        self._alive: weakref.WeakSet[LoaderState] = weakref.WeakSet()
        self._training: Optional[LoaderState] = None
        self._size_before: Optional[int] = None  # the batch size before the script changed it
        self._pulls = 0  # batches that all loaders have given
        self.pulled_size: Optional[int] = None
        """The batch size of the loader that gave the last batch."""
        self.epochs = 0
        """Training epochs that began after the first."""
        self._lookahead: Optional[int] = None  # batches that a wrapper fetches ahead; known after the first step
        self._is_first_step_over = False
        self._beginning: Any = None  # the loader whose iteration begins now
        self._empty = 0  # loaders that ended without a batch, while no loader had given a batch
        self._rejection: Optional[str] = None  # why the last empty loader was empty, until this is reported

    @property
    def folder(self) -> str:
        """The folder of the probe; empty if unknown. Not a constant, as a warm child moves to a folder of its own."""
        reporter = Reporter.current()
        return (reporter.folder if reporter is not None else None) or ""

    def install(self) -> None:
        samples.install()
        renewal.install()
        shards.install()
        replace(DataLoader, "__init__", self._around_init)
        replace(DataLoader, "__iter__", self._around_iter)
        replace(DataLoader, "_get_iterator", self._around_iter)
        loader_kinds.watch({"__init__": self._around_init, "__iter__": self._around_iter})
        replace(dataloader_module._BaseDataLoaderIter, "__next__", self._around_next)
        replace(dataloader_module._MultiProcessingDataLoaderIter, "__init__", self._around_workers)

    def _around_init(self, original: Function) -> Function:
        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            state = self._add(loader)
            if state.has_evidence and (not state.is_late or self._has_dataset_of_training(state)):
                self._set(loader, state)

        return __init__

    def _add(self, loader: Any) -> LoaderState:
        state = self._states[loader] = LoaderState(loader, self._is_first_step_over, self._pulls)
        self._alive.add(state)
        return state

    def _set(self, loader: Any, state: LoaderState) -> None:
        if self._settings.targets and not state.before:
            state.before = self._settings.attributes(loader, state.touched, state.reasons)

    def _around_iter(self, original: Function) -> Function:
        """Wraps a method that begins an iteration.

        `__iter__` calls `_get_iterator`. Subclasses with one endless iterator call only `_get_iterator`.
        """

        def begin(loader: Any) -> Any:
            if self._beginning is loader:
                return original(loader)
            outer, self._beginning = self._beginning, loader
            try:
                return self._begin(original, loader)
            finally:
                self._beginning = outer

        return begin

    def _begin(self, original: Function, loader: Any) -> Any:
        state = self._states.get(loader)
        if state is None:
            state = self._add(loader)
        state.is_at_edge = self._before_iteration(loader, state) and loader.num_workers > 0
        state.said = _said(loader)
        if state.begun_at is None:
            state.begun_at = time.perf_counter()
        iterator = self._begin_iteration(original, loader, state)
        if isinstance(iterator, dataloader_module._BaseDataLoaderIter):  # a subclass may give anything
            iterator._gputune = state
            state.iterator = weakref.ref(iterator)
            renewal.reopen(iterator)
            state.iterators.add(iterator)
        return iterator

    def _around_next(self, original: Function) -> Function:
        clock = time.perf_counter

        def __next__(iterator: Any) -> Any:
            state = iterator.__dict__.get("_gputune")
            if state is None:
                return original(iterator)
            begin = clock()
            self._stopping.between_steps(begin)
            if self.watch is not None:
                self.watch.numbers = state.numbers
            source = renewal.source_of(iterator)
            self.is_for_training = torch.is_grad_enabled()
            if state.is_at_edge:
                batch = self._first_after_edge(original, source, state)
            else:
                self._notice(state)
                waited_from = self.phases.mark_wait()
                self.phases.end_gap()
                try:
                    batch = original(source)
                except StopIteration:
                    renewal.note_end(iterator)
                    self._note_empty(state)
                    if state is self._training and state.said.get("loader.workers"):
                        self._outside.end_epoch(waited_from if self.phases.clock.is_of_device else begin)
                    raise
                finally:
                    self.phases.begin_gap()
                self.phases.add_wait(waited_from)
                if self.phases.thread not in (None, threading.get_ident()):
                    state.aside_seconds += clock() - begin
                elif not self._outside.is_evaluating:
                    state.wait_seconds += clock() - begin
            size = state.counter.count(source, batch, state.batch_size)
            if state.batch_size is None or size == state.batch_size:  # the last batch of an epoch may be smaller
                state.sizes.add(batch)
            if self.largest is not None and state is self._training:
                batch = self.largest.instead_of(batch)
            if state.batch is None:
                self._look_at_first(batch, state, size)
            if state.parts is not None:
                state.parts.add(batch, source)
            self._pulls += 1
            self.pulled_size = state.batch_size
            state.pulled_at = self._pulls
            state.pulls += 1
            state.queue.append(size)
            if len(state.queue) > 64:  # evaluation, or a loader that no step uses
                state.queue.popleft()
            return batch

        return __next__

    def _note_empty(self, state: LoaderState) -> None:
        """Before the first step: reports a loader whose samples do not fill one batch.

        A loader for evaluation may be empty. So the config is rejected at once only if this loader alone is for
        training. Otherwise it is rejected at the end of a run without a batch, or after many empty loaders.
        """
        samples, size = state.said.get("loader.samples"), state.batch_size
        if self._is_first_step_over or self._pulls or not torch.is_grad_enabled():
            return
        if samples is None or size is None or samples >= size:
            return
        message = f"the dataset has {samples} samples, fewer than a batch of {size}"
        if samples > 0:
            if not state.said["loader.drop_last"]:  # then the loader had a batch
                return
            message += ", and drop_last leaves them out"
        self._empty += 1
        self._rejection = message
        if self._empty == 1:
            pid = os.getpid()
            _client.at_exit(lambda: self._reject_empty(pid), 0)
        others = (other for other in self._alive if other is not state)
        is_only = state.has_evidence and not any(other.has_evidence for other in others)
        if is_only or self._empty == _MOST_EMPTY:
            self._reject_empty(os.getpid())

    def _reject_empty(self, pid: int) -> None:
        """Rejects the config if there was no batch and no step; does nothing in a child that has inherited the call."""
        message, self._rejection = self._rejection, None
        if message is not None and not self._pulls and not self._is_first_step_over and pid == os.getpid():
            self._session.send("error", kind="rejected", message=message)

    def _begin_iteration(self, original: Function, loader: Any, state: LoaderState) -> Any:
        is_edge = state.is_at_edge and self._outside.enter_edge()
        if not is_edge:
            self.phases.end_gap()
        try:
            return self._iterate(original, loader, state)
        finally:
            if is_edge:
                self._outside.leave_edge()
            else:
                self.phases.begin_gap()

    def _first_after_edge(self, original: Function, source: Any, state: LoaderState) -> Any:
        state.is_at_edge = False
        is_edge = self._outside.enter_edge()
        try:
            return original(source)
        finally:
            if is_edge:
                self._outside.leave_edge()

    def _notice(self, state: LoaderState) -> None:
        """Notes that the script trains if it requests a batch of the training loader with gradients on."""
        if state is self._training and torch.is_grad_enabled():
            self._outside.trains()

    def _around_workers(self, original: Function) -> Function:
        """Makes workers watch their dataset, and note whether code in them asks which worker it runs in."""

        def __init__(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            state = self._states.get(loader)
            if not self.folder or state is None:
                original(iterator, loader, *args, **kwargs)
                return
            own = loader.worker_init_fn
            starts = own
            if shards.needs_parts(loader):
                state.parts = shards.Parts(loader, state.number, state.parts)
                starts = shards.WorkerAsks(starts, self.folder, state.number)
            if self.watch is not None:
                starts = lines.WorkerLines(starts, self.folder, state.number)
                starts = dataset_watch.WorkerInit(starts, self.folder, state.number)
            loader.worker_init_fn = starts
            try:
                original(iterator, loader, *args, **kwargs)
            finally:
                loader.worker_init_fn = own

        return __init__

    def _iterate(self, original: Function, loader: Any, state: LoaderState) -> Any:
        """The loader's iterator, or an experiment's iterator."""
        experiment = self._session.experiment
        if self.largest is not None and self._is_candidate(state):
            self.largest.read(loader, self._between_batches)
        if experiment is None or self._mode not in (REPLAY, LOADER_ONLY) or not self._is_candidate(state):
            return original(loader)
        if self._mode == LOADER_ONLY:
            return SweepIterator(loader, lambda: self._sweep(experiment, loader, state))
        training = self._training
        if state.kept is None and training is not None and state.is_late:
            state.kept = training.kept
        if state.kept is None:
            state.kept = Kept(experiment.batches, self._facts)
        inner = None if state.kept.is_filled else original(loader)
        return ReplayIterator(loader, state.kept, inner, self._session.flush)

    def _is_candidate(self, state: LoaderState) -> bool:
        """True if the experiment applies to this loader, which is iterated now."""
        if not torch.is_grad_enabled() or not self._session.is_ours:
            return False
        # If no loader has evidence, any loader is a candidate. Otherwise a loader without evidence must first train.
        return (state.has_evidence and not state.is_late) or state is self._training or self._may_train(state)

    def _between_batches(self) -> None:
        self._session.flush()
        self._stopping.between_steps(time.perf_counter())

    def _sweep(self, experiment: Experiment, loader: Any, state: LoaderState) -> None:
        """Measures the loader and ends the run."""
        self._training = state
        self.say_facts(self._facts)

        def repeats() -> bool:
            return state.parts is not None and state.parts.repeated(self.folder, state.iterations > 1) is not None

        LoaderOnly(experiment, self._facts, self._between_batches, repeats).run(loader, state.batch_size)
        self.say_facts(self._facts)
        self._say_taken(state)
        self._session.check({}, "dataloader.")
        self._stopping.leave()

    @property
    def is_replaying(self) -> bool:
        return any(state.kept is not None and state.kept.is_filled for state in self._alive)

    @property
    def counter(self) -> Optional[samples.BatchCounter]:
        """The counter of samples in the batches of the training loader."""
        return None if self._training is None else self._training.counter

    @property
    def has_pulled(self) -> bool:
        """True if a loader gave a batch."""
        return self._pulls > 0

    @property
    def batches(self) -> Optional[int]:
        """The batches of an epoch of the training loader, if it has a length."""
        return None if self._training is None else self._training.said.get("loader.batches")

    @property
    def batch_size(self) -> Optional[int]:
        """The batch size of the training loader."""
        return None if self._training is None else self._training.batch_size

    @property
    def is_sized(self) -> Optional[bool]:
        """True if the batch size of the training loader can be set; `None` without a training loader."""
        return None if self._training is None else self._training.is_sized

    @property
    def training_number(self) -> Optional[int]:
        return None if self._training is None else self._training.number

    def trains_with(self, iterator: Any) -> bool:
        """True if an iterator belongs to the training loader."""
        state = iterator.__dict__.get("_gputune")
        return state is not None and state is self._training

    def numbers(self, number: int) -> Any:
        """The counters of `dataset_watch` in this process for the loader with this number."""
        return next(state.numbers for state in self._alive if state.number == number)

    def worker_pids(self) -> list[int]:
        """The process ids of the training loader's workers."""
        iterator = None if self._training is None else self._training.iterator()
        workers = () if iterator is None else getattr(renewal.source_of(iterator), "_workers", ())
        return [worker.pid for worker in workers if worker.pid is not None]

    def say_facts(self, facts: Facts) -> None:
        """Reports the facts of the training loader."""
        state = self._training
        if state is None:
            return
        first, size, is_pinned = state.batch or (None, None, None)
        for name, value in state.said.items():
            facts.say(name, value)
        if state.batch_size is not None or state.sizes.are_alike:
            facts.say("loader.batch_size", state.batch_size or first)
        facts.say("loader.batch_size_before", self._size_before)
        facts.say("loader.batch_bytes", size)
        facts.say("loader.batch_pinned", is_pinned)
        facts.say("loader.first_batch_seconds", state.first_batch_seconds)
        if self.largest is None:
            state.sizes.say_facts(facts, state.not_read)
        if state.parts is not None and self.folder:
            facts.say("loader.repeats", state.parts.repeated(self.folder, state.iterations > 1))
            facts.say("loader.workers_delivering", state.parts.delivering)

    def renew(self) -> None:
        """Applies changed settings to the training loader, which goes on with the same data."""
        state = self._training
        loader = None if state is None else state.loader()
        if state is None or loader is None:
            raise CannotChange(_UNKNOWN)
        trains_too = (other for other in self._alive if other.has_evidence and other.has_gradients)
        if any(other is not state and other.loader() is not None for other in trains_too):
            raise CannotChange("more than one DataLoader trains")
        iterator, size = renewal.under_way(state.iterators), self._settings.size_of(loader)
        rest = renewal.begin(iterator if iterator is not None else loader._iterator)
        self._settings.restore(loader, state.before)
        self._settings = LoaderSettings(self._session)
        self._size_before = None
        state.begin_anew()
        self._set(loader, state)
        state.said, state.batch_size = _said(loader), self._batch_size_of(loader)
        if iterator is not None:
            renewal.finish(iterator, loader, rest, size == self._settings.size_of(loader))
        self._say_taken(state)

    def _look_at_first(self, batch: Any, state: LoaderState, samples_in_it: Optional[int]) -> None:
        """Notes size and pinning of a loader's first batch."""
        if state.begun_at is not None:
            state.first_batch_seconds = time.perf_counter() - state.begun_at
        tensors = tensors_in(batch)
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        is_pinned = bool(tensors) and devices.any_in_use() and all(tensor.is_pinned() for tensor in tensors)
        state.batch = (samples_in_it, size, is_pinned)

    def _before_iteration(self, loader: Any, state: LoaderState) -> bool:
        """Applies settings before an iteration. Returns true if a training epoch after the first begins."""
        state.iterations += 1
        state.has_gradients = state.has_gradients or torch.is_grad_enabled()
        if self._may_train(state):
            self._set(loader, state)
        before, state.batch_size = state.batch_size, self._batch_size_of(loader)
        state.is_sized = self._settings.size_of(loader) is not None
        if state is self._training:
            self._note_size(before, state.batch_size)
        if not self._is_first_step_over:
            return False
        if torch.is_grad_enabled() and (state is self._training or self._may_train(state)):
            self._marks.note("epoch")
            self.epochs += 1
            self._outside.trains()
            return True
        if not state.has_evidence or not torch.is_grad_enabled():
            self._outside.evaluates()
        return False

    @staticmethod
    def _batch_size_of(loader: Any) -> Optional[int]:
        sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        size = getattr(sampler, "batch_size", None)
        return size if isinstance(size, int) else None

    def _may_train(self, state: LoaderState) -> bool:
        """True if a loader that is iterated now probably trains, judged without its batches.

        Before the first step: gradients are on, and no loader has arguments that show training. Later: the loader is
        new and made like the training loader, as some scripts make a loader for each epoch.
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
            and state.dataset_type == training.dataset_type
        )

    def _has_dataset_of_training(self, state: LoaderState) -> bool:
        training = self._training
        dataset = state.dataset()
        return training is not None and dataset is not None and dataset is training.dataset()

    def step(self, forwards: int, backwards: int) -> tuple[Optional[int], tuple[float, float]]:
        """Samples of the step that ends now (`None` if unknown), and the seconds of waiting for data.

        The seconds are a pair: waits of the training thread, and waits of other threads.
        `forwards` is how often the training modules were called, `backwards` how often gradients were computed. If the
        first step showed that a wrapper fetches ahead, further batches belong to the next step.
        """
        training = self._current_training()
        if training is None:
            return None, (0.0, 0.0)
        waits = training.wait_seconds, training.aside_seconds
        queue = training.queue
        used = min(len(queue), forwards) if forwards else len(queue)
        if self._lookahead is None:
            ahead = len(queue) - used
            self._lookahead = ahead if ahead <= _LONGEST_LOOKAHEAD else 0
        used = max(used, len(queue) - self._lookahead)
        sizes = [queue.popleft() for _ in range(used)]
        for state in self._alive:
            state.pulls = 0
            state.wait_seconds = state.aside_seconds = 0.0
        if not sizes or any(size is None for size in sizes):
            return None, waits
        return training.skips.trained([size for size in sizes if size is not None], backwards), waits

    def _current_training(self) -> Optional[LoaderState]:
        training = self._training
        if training is not None and (training.pulls or training.queue):
            return training
        pulling = [state for state in self._alive if state.pulls]
        if pulling:
            last = max(pulling, key=lambda state: state.pulled_at)
            # Loaders zipped with `last` have given equally many batches, with the same signs of training. The loader
            # that gave its batch first counts.
            use = (last.pulls, last.has_evidence, last.has_gradients)
            zipped = [state for state in pulling if (state.pulls, state.has_evidence, state.has_gradients) == use]
            # Skip loaders last used before `last` was made: `last` has replaced them, for example with smaller batches.
            zipped = [state for state in zipped if state.pulled_at > last.made_at]
            self._train_with(min(zipped, key=lambda state: state.pulled_at))
        return self._training

    def _train_with(self, state: LoaderState) -> None:
        before, self._training = self._training, state
        if before is not None and state.is_late:
            self._note_size(before.batch_size, state.batch_size)

    def _note_size(self, before: Optional[int], now: Optional[int]) -> None:
        """Notes that the script changes the batch size while it trains."""
        if before is not None and now is not None and now != before:
            self._size_before = before

    def end_first_step(self) -> None:
        """Reports the settings that were applied to the training loader; restores loaders that do not train."""
        self._is_first_step_over = True
        training = self._training
        for state in list(self._alive):
            loader = state.loader()
            trains_too = state.has_evidence and state.has_gradients  # such as a loader zipped with the training loader
            if state is training or not state.before:
                continue
            if trains_too:
                if training is not None:
                    self._settings.keep_ratio(state.before, training.before)
            elif loader is not None:
                self._settings.restore(loader, state.before)
                state.before = {}
        if training is not None:
            self._say_taken(training)

    def _say_taken(self, training: LoaderState) -> None:
        for target in self._settings.targets:
            if target in training.touched:
                self._session.apply(target)
            elif target in training.reasons:
                self._session.explain(target, training.reasons[target])
            else:
                self._session.explain(target, _UNKNOWN)


def _reference(value: Any) -> Callable[[], Any]:
    """A weak reference; a strong reference to types without weak references, such as a list."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value
