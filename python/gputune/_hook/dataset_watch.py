"""Watches datasets in the process that loads: how long samples take, and which files they come from.

A worker writes its numbers into a mapped file next to `probe.json`. The training process reads that file without
asking the worker, and the numbers of a killed worker remain.
"""

from __future__ import annotations

import functools
import math
import mmap
import os
import time
from array import array
from collections.abc import Iterable
from typing import Any, Callable, Optional

from torch.utils.data._utils import fetch as fetching

from gputune._hook.batches import samples_in
from gputune._hook.data_files import DataFiles
from gputune._hook.patching import Function, replace

#: Indices of the numbers, which are sums since the start. An item is a sample. OPENED, OPENED_BYTES and SIZED are the
#: counts of `DataFiles.between_batches`. IDLE_SECONDS and HANDING_CPU_SECONDS are the time and the CPU time between two
#: batches.
(ITEMS, ITEM_SECONDS, ITEM_CPU_SECONDS, BATCHES, BUSY_SECONDS, COLLATE_SECONDS, OPENED, OPENED_BYTES, SIZED) = range(9)
(COLLATE_CPU_SECONDS, IDLE_SECONDS, HANDING_CPU_SECONDS) = range(9, 12)
#: Index at which the histogram of sample times begins: eight bins per doubling, from 1 us on.
_HISTOGRAM = 16
_BINS_PER_DOUBLING = 8
_BINS = 30 * _BINS_PER_DOUBLING
LENGTH = _HISTOGRAM + _BINS
_SHORTEST = 1e-6

#: Least mean seconds per sample for which each sample is timed. Timing shorter samples would cost too much.
_WORTH_TIMING = 20e-6

#: The numbers of one loader in one process: an array, or the memory of a mapped file.
Numbers = Any


class DatasetWatch:
    """Collects the numbers of this process."""

    def __init__(self, files: DataFiles, numbers: Optional[Numbers], processor_time: Callable[[], float]) -> None:
        self.numbers: Numbers = array("d", bytes(8 * LENGTH)) if numbers is None else numbers
        self.files = files
        self.is_inside = False
        self._processor_time = processor_time
        self._times_items = False
        self._samples = 0
        self._collated = (0.0, 0.0)  # seconds of wall time and CPU time that collating this batch took
        self._ended: Optional[tuple[float, float]] = None  # end of the last batch: wall time and CPU time

    def fetch(self, original: Function, fetcher: Any, index: Any) -> Any:
        """Fetches a batch and times it."""
        self._samples, self._collated = 0, (0.0, 0.0)
        times: list[float] = []
        self.is_inside = True
        wall, cpu = time.perf_counter(), self._processor_time()
        if self._ended is not None:
            self.numbers[IDLE_SECONDS] += wall - self._ended[0]
            self.numbers[HANDING_CPU_SECONDS] += cpu - self._ended[1]
        try:
            if self._times_items and _takes_samples_one_by_one(fetcher):
                batch = fetcher.collate_fn(_timed_samples(fetcher.dataset, index, times))
            else:
                batch = original(fetcher, index)
        finally:
            self.is_inside = False
        self._ended = (time.perf_counter(), self._processor_time())
        self._add(self._ended[0] - wall, self._ended[1] - cpu, times)
        for place, more in zip((OPENED, OPENED_BYTES, SIZED), self.files.between_batches()):
            self.numbers[place] += more
        return batch

    def collate(self, own: Function, data: Any, is_many: bool) -> Any:
        """Collates samples into a batch, or converts a batch that the dataset has made."""
        wall, cpu = time.perf_counter(), self._processor_time()
        batch = own(data)
        self._collated = (time.perf_counter() - wall, self._processor_time() - cpu)
        try:
            # A dataset that returns whole batches may return another type than a list of samples.
            self._samples = len(data) if is_many and isinstance(data, list) else samples_in(batch) or 1
        except TypeError:
            self._samples = 1
        return batch

    def _add(self, wall: float, cpu: float, times: list[float]) -> None:
        numbers, samples = self.numbers, max(self._samples, 1)
        in_dataset = max(wall - self._collated[0], 0.0)
        numbers[ITEMS] += samples
        numbers[ITEM_SECONDS] += in_dataset
        numbers[ITEM_CPU_SECONDS] += max(cpu - self._collated[1], 0.0)
        numbers[BATCHES] += 1
        numbers[BUSY_SECONDS] += wall
        numbers[COLLATE_SECONDS] += self._collated[0]
        numbers[COLLATE_CPU_SECONDS] += self._collated[1]
        mean = in_dataset / samples
        self._times_items = mean >= _WORTH_TIMING
        for seconds in times or (mean,):
            numbers[_HISTOGRAM + _bin(seconds)] += 1


_watch: Optional[DatasetWatch] = None
_is_installed = False


def install(watch: DatasetWatch) -> None:
    """Watches the datasets of this process from now on; replaces the watch of the parent process."""
    global _watch, _is_installed
    _watch = watch
    watch.files.listen(is_inside)
    if _is_installed:
        return
    _is_installed = True
    replace(fetching._BaseDatasetFetcher, "__init__", _around_init)
    for kind in (fetching._MapDatasetFetcher, fetching._IterableDatasetFetcher):
        replace(kind, "fetch", _around_fetch)


def is_inside() -> bool:
    """True while a dataset of this process loads a batch."""
    return _watch is not None and _watch.is_inside


def _around_init(original: Function) -> Function:
    def __init__(fetcher: Any, *args: Any, **kwargs: Any) -> None:
        original(fetcher, *args, **kwargs)
        fetcher.collate_fn = functools.partial(_collate, fetcher.collate_fn, fetcher.auto_collation)

    return __init__


def _collate(own: Function, is_many: bool, data: Any) -> Any:
    return own(data) if _watch is None else _watch.collate(own, data, is_many)


def _around_fetch(original: Function) -> Function:
    def fetch(fetcher: Any, index: Any) -> Any:
        return original(fetcher, index) if _watch is None else _watch.fetch(original, fetcher, index)

    return fetch


def _takes_samples_one_by_one(fetcher: Any) -> bool:
    """True if fetching is `[dataset[index] for index in batch]`, so that each sample can be timed."""
    is_plain = type(fetcher) is fetching._MapDatasetFetcher and fetcher.auto_collation
    return is_plain and not getattr(fetcher.dataset, "__getitems__", None)


def _timed_samples(dataset: Any, indices: Iterable[Any], times: list[float]) -> list[Any]:
    samples = []
    begin = time.perf_counter()
    for index in indices:
        samples.append(dataset[index])
        end = time.perf_counter()
        times.append(end - begin)
        begin = end
    return samples


def _bin(seconds: float) -> int:
    place = int(math.log2(max(seconds, _SHORTEST) / _SHORTEST) * _BINS_PER_DOUBLING)
    return min(place, _BINS - 1)


def quantile(numbers: list[float], share: float) -> Optional[float]:
    """The seconds within which `share` of the samples load, from the histogram; `None` without samples."""
    counts = numbers[_HISTOGRAM:]
    left = sum(counts) * share
    if left <= 0:
        return None
    for place, count in enumerate(counts):
        left -= count
        if left <= 0:
            return float(_SHORTEST * 2 ** ((place + 0.5) / _BINS_PER_DOUBLING))
    return None


class AtWorkerStart:
    """Starts a measurement in a worker. Replaces the loader's `worker_init_fn`, and calls that function last."""

    def __init__(self, own: Optional[Function], folder: str, loader: int) -> None:
        self._own = own
        self._folder = folder
        self._loader = loader

    def __call__(self, worker: int) -> None:
        try:
            self.begin(self._folder, f"{self._loader}-{worker}-{os.getpid()}")
        except OSError:  # no space is left: training goes on
            pass
        if self._own is not None:
            self._own(worker)

    def begin(self, folder: str, name: str) -> None:
        """Starts the measurement; file names in the folder contain `name`, which identifies the worker."""
        raise NotImplementedError


class WorkerInit(AtWorkerStart):
    """Starts to watch the dataset."""

    def begin(self, folder: str, name: str) -> None:
        numbers = mapped(os.path.join(folder, f"loader-{name}"), LENGTH)
        install(DatasetWatch(DataFiles(folder), numbers, time.process_time))


def mapped(path: str, length: int) -> Numbers:
    """Numbers in a mapped file that other processes can read."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, 8 * length)  # a full disk raises here, instead of a signal later
        return memoryview(mmap.mmap(descriptor, 8 * length)).cast("d")
    finally:
        os.close(descriptor)


def numbers_of_workers(folder: str, loader: int) -> list[list[float]]:
    """The numbers of each worker of a loader. Adds up the workers with the same index in different epochs."""
    found: dict[str, list[float]] = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith(f"loader-{loader}-"):
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    numbers = array("d", file.read(8 * LENGTH))
            except (OSError, ValueError):
                continue
            if len(numbers) == LENGTH:
                worker = name.split("-")[2]
                found[worker] = [sum(both) for both in zip(numbers, found.get(worker, [0.0] * LENGTH))]
    return list(found.values())
