"""Reports cheap facts in every probe, and all facts if an experiment requests them."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Optional

import torch

from gputune._client import rank_and_ranks
from gputune._hook import asked_iterators, dataset_watch, lines, model_facts
from gputune._hook.communication import Communication
from gputune._hook.data_files import DataFiles, FilesFound
from gputune._hook.facts import Facts
from gputune._hook.logs import Logs
from gputune._hook.operations import Operations
from gputune._hook.parts import Hook
from gputune._hook.syncs import Syncs
from gputune._hook.training_stacks import TrainingStacks

#: Least share of waiting for which an iterator without a known name is reported. A round number: a smaller share may be
#: noise.
_WAITS = 0.05

#: Seconds between two reports.
_REPORT_SECONDS = 1.0


class Observer:
    """Reports the cheap facts of this process."""

    def __init__(self, hook: Hook, folder: str) -> None:
        self._hook = hook
        self._folder = folder
        self._facts: Facts = hook.facts
        self._autocast = model_facts.Autocast()
        self._batch_norm = model_facts.BatchNorm()
        self._communication = Communication(hook.phases)
        self._rank = 0
        self._reported_at = 0.0
        self._is_anew = False  # the settings have changed since the last report
        self._first = (0, 0.0, 0.0)  # step, wall time and thread time when counting began

    def install(self) -> None:
        self._autocast.install()
        self._batch_norm.install()
        self._communication.install()
        self._hook.steps.in_backward = self._communication.in_backward
        self._hook.steps.edges.append(self._at_edge)
        self._hook.steps.checks.append(self._at_first_step)
        self._hook.steps.beginnings.append(self._begin_anew)

    def _at_first_step(self) -> None:
        self._rank = rank_and_ranks()[0]
        self._reported_at = time.perf_counter()
        self._first = (self._hook.steps.number, self._reported_at, time.thread_time())
        self.begin()
        if self._rank == 0:
            self.say_model()
            self._hook.phases.changed.append(lambda device: self.say_model())
            self._hook.loaders.say_facts(self._facts)

    def _begin_anew(self) -> None:
        self._facts.forget()
        self._autocast.dtype.clear()
        self._reported_at = time.perf_counter()
        self._first = (self._hook.steps.number, self._reported_at, time.thread_time())
        self._is_anew = True

    def say_model(self) -> None:
        """Reports the facts that change only with the settings or the training device."""
        hook, say = self._hook, self._facts.say
        modules = hook.modules.found
        device = "cpu" if hook.phases.device is None else hook.phases.device.type
        say("device", device)
        say("threads", torch.get_num_threads())
        if modules:
            say("precision", model_facts.precision(device, modules, self._autocast))
            if device == "cuda":
                say("tf32.convolutions", model_facts.is_tf32_in_convolutions())
            say("parameters", model_facts.parameters(modules))
            say("parameters_4d", model_facts.has_images(modules))
            say("compiled", model_facts.is_compiled(modules))
            say("batch_norm.needs_two_samples", self._batch_norm.needs_two_samples)
            say("flash_attention", model_facts.flash_attention(device, modules))
        optimizer = hook.steps.optimizer
        if optimizer is not None and hasattr(optimizer, "param_groups"):
            say("optimizer", type(optimizer).__name__)
            say("optimizer_fused", model_facts.is_fused(optimizer))

    def _at_edge(self, is_last: bool) -> None:
        now = time.perf_counter()
        if self._is_anew:
            self._is_anew = False
            self.say_model()
            self._hook.loaders.say_facts(self._facts)
        if not is_last and now - self._reported_at < _REPORT_SECONDS:
            return
        self._reported_at = now
        steps, wall = self._hook.steps.number - self._first[0], now - self._first[1]
        if steps <= 0 or wall <= 0:
            return
        self._facts.say("step_compute_seconds", self._hook.steps.compute_seconds())
        self._facts.say("accumulation", self._hook.steps.losses_per_step)
        if self._rank == 0:
            self._facts.say("main_cpu_share", min((time.thread_time() - self._first[2]) / wall, 1.0))
            self._hook.loaders.say_facts(self._facts)
            self._hook.steps.samples.say_facts(self._facts)
            self.report(steps, wall)

    def begin(self) -> None:
        """Starts counting. Only a subclass has counts."""

    def report(self, steps: int, wall: float) -> None:
        """Reports the counts over `steps` steps and `wall` seconds. Only a subclass has counts."""


class Evidence(Observer):
    """Reports all facts."""

    def __init__(self, hook: Hook, folder: str) -> None:
        super().__init__(hook, folder)
        self._syncs = Syncs(hook.phases)
        self._logs = Logs()
        self._operations = Operations(hook.phases)
        for sites in (self._syncs.sites, self._logs.sites):
            sites.is_left_out = lambda: hook.outside.is_evaluating
        self._files = DataFiles(folder)
        self._found = FilesFound(folder)
        self._watch = dataset_watch.DatasetWatch(self._files, None, time.thread_time)
        self._read_before: dict[int, tuple[int, int]] = {}
        self._lines: Optional[lines.Sampler] = None
        self._lines_of_workers = lines.LinesOfWorkers(folder)
        self._looks = self._running = self._on_storage = 0  # observed worker states: all, running, waiting for storage
        self._read = (0, 0)  # bytes read by system calls, and the part of them that came from storage

    def install(self) -> None:
        super().install()
        self._syncs.install()
        self._logs.install()
        self._operations.install()
        self._hook.steps.endings.append(self._operations.end_step)
        dataset_watch.install(self._watch)
        self._hook.loaders.watch = self._watch

    def begin(self) -> None:
        self._syncs.sites.begin()
        self._logs.begin()
        self._files.look()
        self._count_bytes()
        self._read = (0, 0)
        if self._rank == 0:
            thread = threading.get_ident()
            stacks = TrainingStacks(thread, self._hook)
            self._hook.steps.endings.append(stacks.note_step)
            self._lines = lines.Sampler(thread, stacks.seen)
            lines.start(self._lines)
            self._hook.steps.share_of_wait = self._share_of_wait

    def report(self, steps: int, wall: float) -> None:
        say = self._facts.say
        syncs, logs = self._syncs.sites, self._logs.sites
        say("syncs_per_step", syncs.calls / steps)
        say("sync_seconds_per_step", syncs.seconds / steps)
        say("sync_sites", syncs.told(by_time=False))
        say("logs_per_step", logs.calls / steps)
        say("log_seconds_per_step", logs.seconds / steps)
        say("log_sites", logs.told(by_time=True))
        say("operation_seconds_per_step", self._operations.seconds_per_step)
        self._say_states()
        self._say_lines(wall)
        self._count_bytes()
        say("files.read_bytes_per_second", self._read[0] / wall)
        if self._read[0] > 0:
            say("files.cached_share", max(1.0 - self._read[1] / self._read[0], 0.0))
        number = self._hook.loaders.training_number
        if number is not None:
            self._say_loading(number)

    def _say_loading(self, loader: int) -> None:
        """Reports the numbers of the training loader, from its workers or from this process."""
        say = self._facts.say
        workers = dataset_watch.numbers_of_workers(self._folder, loader)
        numbers = [sum(numbers) for numbers in zip(*workers)] if workers else list(self._hook.loaders.numbers(loader))
        items, batches = numbers[dataset_watch.ITEMS], numbers[dataset_watch.BATCHES]
        if items <= 0:
            return
        say("loader.item_seconds", numbers[dataset_watch.ITEM_SECONDS] / items)
        say("loader.item_cpu_seconds", numbers[dataset_watch.ITEM_CPU_SECONDS] / items)
        say("loader.item_seconds_p95", dataset_watch.quantile(numbers, 0.95))
        say("loader.collate_seconds", numbers[dataset_watch.COLLATE_SECONDS] / batches)
        say("loader.collate_cpu_seconds", numbers[dataset_watch.COLLATE_CPU_SECONDS] / batches)
        if workers:
            alive = numbers[dataset_watch.BUSY_SECONDS] + numbers[dataset_watch.IDLE_SECONDS]
            say("loader.workers_busy", numbers[dataset_watch.BUSY_SECONDS] / alive)
            say("loader.handing_cpu_seconds", numbers[dataset_watch.HANDING_CPU_SECONDS] / batches)
        busy = [worker[dataset_watch.BUSY_SECONDS] for worker in workers]
        if len(busy) > 1 and sum(busy) > 0:
            say("loader.worker_imbalance", max(busy) * len(busy) / sum(busy))
        self._files.write()
        self._found.read()
        kind, folder, size = self._found.verdict()
        say("files.kind", kind)
        say("files.path", folder)
        say("files.opened_per_sample", numbers[dataset_watch.OPENED] / items)
        if numbers[dataset_watch.SIZED] > 0:
            size = numbers[dataset_watch.OPENED_BYTES] / numbers[dataset_watch.SIZED]
        say("files.mean_bytes", size)

    def _say_lines(self, wall: float) -> None:
        """Reports the lines that take the time of the training thread and of the training loader's workers."""
        say = self._facts.say
        if self._lines is None:
            return
        say("lines.main", self._lines.table.told())
        say("lines.cost_share", self._lines.cost / wall)
        if self._share_of_wait() >= _WAITS and self._facts.known("loader.other") is None:
            say("loader.other", "an iterator")
        number, pids = self._hook.loaders.training_number, self._hook.loaders.worker_pids()
        if number is not None:
            say("lines.workers", self._lines_of_workers.table(number, pids).told())

    def _share_of_wait(self) -> float:
        """The share of waiting for an iterator in the time outside of phases, if no DataLoader trains."""
        if self._lines is None or self._hook.loaders.training_number is not None:
            return 0.0
        return asked_iterators.share(self._lines.table.kinds)

    def _say_states(self) -> None:
        """Samples the states of the workers (`man 5 proc`, the state in /proc/PID/stat)."""
        states = [_state(pid) for pid in self._hook.loaders.worker_pids()]
        self._looks += len(states)
        self._running += states.count("R")
        self._on_storage += states.count("D")
        if self._looks:
            self._facts.say("loader.workers_running", self._running / self._looks)
            self._facts.say("loader.workers_on_storage", self._on_storage / self._looks)

    def _count_bytes(self) -> None:
        """Adds the bytes that this process and the loader's workers have read (`man 5 proc`, /proc/PID/io)."""
        for pid in (os.getpid(), *self._hook.loaders.worker_pids()):
            now = _bytes_read(pid)
            if now is None:
                continue
            # A worker has read for this loader since its start. This process has read much before the first call.
            before = self._read_before.get(pid, now if pid == os.getpid() else (0, 0))
            self._read_before[pid] = now
            self._read = (self._read[0] + now[0] - before[0], self._read[1] + now[1] - before[1])


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2][:1]
    except OSError:  # the process has ended
        return ""


def _bytes_read(pid: int) -> Optional[tuple[int, int]]:
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            numbers = dict(line.split(":") for line in file)
        return int(numbers["rchar"]), int(numbers["read_bytes"])
    except (OSError, ValueError, KeyError):  # the process has ended
        return None


def make(hook: Hook, folder: str, is_asked: bool) -> Any:
    """The observer of a probe. `is_asked` is true if an experiment requests all facts."""
    return Evidence(hook, folder) if is_asked else Observer(hook, folder)
