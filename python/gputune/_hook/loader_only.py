"""The experiment `loader_only`: samples per second of the training loader for several numbers of workers."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any, Callable, Optional

from gputune._client import rank_and_ranks
from gputune._hook.experiment import Experiment
from gputune._hook.facts import Facts
from gputune._hook.patching import VERSION
from gputune._hook.renewal import new_iterator
from gputune._hook.replaying import ExperimentIterator, stop_workers
from gputune._hook.samples import BatchCounter

#: Most seconds for workers to start and to load their first batches.
_START_SECONDS = 25.0


class SweepIterator(ExperimentIterator):
    """Measures the loader and ends the run at the first request for a batch.

    It does not end the run earlier, as trainers may not expect an exit when they make the iterator.
    """

    def __init__(self, loader: Any, sweep: Callable[[], None]) -> None:
        super().__init__(loader)
        self._sweep = sweep

    def _next_data(self) -> Any:
        self._sweep()
        raise StopIteration


class LoaderOnly:
    """Measures a loader, which it changes in place for each number of workers."""

    def __init__(
        self, experiment: Experiment, facts: Facts, between: Callable[[], None], repeats: Callable[[], bool]
    ) -> None:
        self._experiment = experiment
        self._facts = facts
        self._between = between  # checks for the order to stop, and sends waiting events
        self._repeats = repeats  # returns true if all workers yield the same samples

    def run(self, loader: Any, batch_size: Optional[int]) -> None:
        """Measures each number of workers. Raises an error before the first rate, and reports later errors as facts."""
        rates: dict[int, float] = {}
        _, ranks = rank_and_ranks()
        own = (loader.prefetch_factor or 2, loader.timeout or _START_SECONDS)
        for workers in dict.fromkeys(self._experiment.workers):
            try:
                _prepare(loader, workers, *own)
                rate = self._rate(loader, workers, batch_size)
            except Exception as error:
                if not rates:
                    raise
                self._facts.say("loader_only.error", f"{workers} workers: {type(error).__name__}: {error}"[:500])
                continue
            if rate is not None:
                repeats = workers if workers > 1 and self._repeats() else 1
                rates[workers] = rate * ranks / repeats
                self._facts.say("loader_only.rate." + str(workers), rates[workers])
                self._facts.say("loader_only.workers_best", max(rates, key=lambda count: rates[count]))
            self._between()

    def _rate(self, loader: Any, workers: int, batch_size: Optional[int]) -> Optional[float]:
        """Samples per second after each worker's first batch; `None` if fewer than two batches came."""
        iterator = _begin(loader)
        try:
            return self._measure(loader, iterator, workers, batch_size)
        finally:
            stop_workers(iterator)

    def _measure(self, loader: Any, iterator: Any, workers: int, batch_size: Optional[int]) -> Optional[float]:
        dropped = max(workers, 1)  # not counted: workers give their first batches at about the same time
        arrivals: list[tuple[float, int]] = []
        counter = BatchCounter()
        begin = time.perf_counter()
        used: list[float] = []  # CPU seconds after each worker's first batch
        is_empty = True
        while True:
            try:
                batch = next(iterator)
                is_empty = False
            except StopIteration:
                if is_empty:
                    break
                is_empty = True
                iterator = self._next_epoch(loader, iterator, workers)
                continue
            now = time.perf_counter()
            arrivals.append((now, counter.count(iterator, batch, batch_size) or 1))
            del batch
            if len(arrivals) == dropped:
                used.append(_processor_seconds(iterator))
            self._between()
            measured = now - arrivals[min(dropped, len(arrivals)) - 1][0]
            if len(arrivals) > dropped and measured >= self._experiment.seconds:
                break
            if len(arrivals) > 1 and now - begin >= _START_SECONDS + self._experiment.seconds:
                break
        if used and len(arrivals) > dropped:
            cores = (_processor_seconds(iterator) - used[0]) / (arrivals[-1][0] - arrivals[dropped - 1][0])
            self._facts.say("loader_only.cores." + str(workers), max(cores, 0.0))
        return _rate(arrivals, dropped, workers)

    @staticmethod
    def _next_epoch(loader: Any, iterator: Any, workers: int) -> Any:
        if workers > 0:
            iterator._reset(loader)  # as torch does with persistent workers
            return iterator
        return _begin(loader)


def _processor_seconds(iterator: Any) -> float:
    """CPU seconds of this process and its current workers (`man 5 proc`, /proc/PID/stat)."""
    seconds = time.process_time()
    for worker in getattr(iterator, "_workers", ()):
        try:
            with open(f"/proc/{worker.pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(") ")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):  # the worker has ended
            continue
    return seconds


def _begin(loader: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than cores are tried on purpose
        return new_iterator(loader)


def _rate(arrivals: list[tuple[float, int]], dropped: int, workers: int) -> Optional[float]:
    """Samples per second over whole rounds. In a round each worker gives one batch."""
    if len(arrivals) < 2:
        return None
    first = min(dropped, len(arrivals) - 1) - 1
    counted = len(arrivals) - 1 - first
    if counted > max(workers, 1):
        counted -= counted % max(workers, 1)
    seconds = arrivals[first + counted][0] - arrivals[first][0]
    samples = sum(size for _, size in arrivals[first + 1 : first + counted + 1])
    return samples / seconds if seconds > 0 else None


def _prepare(loader: Any, workers: int, prefetch: int, timeout: float) -> None:
    """Sets the number of workers. Bypasses `__setattr__`, as torch forbids such changes for a loader in use."""

    def put(name: str, value: Any) -> None:
        object.__setattr__(loader, name, value)

    put("_iterator", None)
    put("num_workers", workers)
    put("persistent_workers", workers > 0)
    if workers > 0:
        put("prefetch_factor", prefetch)
        put("timeout", timeout)
    else:
        put("prefetch_factor", None if VERSION >= (2, 0) else 2)
        put("timeout", 0)
