"""The long-run speed of configs, measured without gputune: all of them train in short slices, one after the other.

Each config is a process group that is stopped except in its own slice. The script counts its samples in a file.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from typing import Callable, NamedTuple, Optional, Sequence

#: Seconds between the start of a slice and its measurement.
SETTLE_S = 0.3
#: Samples that a process trains before its first slice, in batches.
WARM_UP_BATCHES = 10
START_TIMEOUT_S = 120
#: Half the width of a 95% interval, in standard errors, from 20 slices on.
STUDENT = 2.1


class Config(NamedTuple):
    """The settings of slow_loader.py."""

    batch_size: int
    workers: int


#: Kills the process groups that it was told, once the bench is gone. A killed bench would leave them stopped for ever.
GUARD = """
import os, signal, sys
groups = [int(line) for line in sys.stdin]
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class Guard:
    """Ends all jobs if the bench is killed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", GUARD], stdin=subprocess.PIPE, start_new_session=True)

    def watch(self, job: subprocess.Popen[bytes]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{job.pid}\n".encode())
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Job:
    """One config as a stopped process group."""

    def __init__(
        self, command: Sequence[str], config: Config, folder: str, variables: dict[str, str], guard: Guard
    ) -> None:
        self.path = os.path.join(folder, f"{config.batch_size}-{config.workers}")
        words = [*command, "--batch-size", str(config.batch_size), "--workers", str(config.workers)]
        with open(self.path + ".log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*words, "--counter", self.path],
                env={**os.environ, **variables},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        guard.watch(self.process)
        try:
            self._warm_up(config)
        except BaseException:
            self.end()
            raise

    def _warm_up(self, config: Config) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.samples() < WARM_UP_BATCHES * config.batch_size:
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(self.path + ".log", encoding="utf-8") as log:
                    raise RuntimeError(f"{config} does not train\n{log.read()[-2000:]}")
            time.sleep(0.05)
        self._signal(signal.SIGSTOP)

    def samples(self) -> int:
        """Samples trained so far."""
        try:
            with open(self.path, "rb") as file:
                found = file.read(8)
        except FileNotFoundError:
            return 0
        return int(struct.unpack("q", found)[0]) if len(found) == 8 else 0

    def slice(self, seconds: float) -> tuple[int, float]:
        """Samples trained in one slice, and its exact length."""
        self._signal(signal.SIGCONT)
        time.sleep(SETTLE_S)
        before, began = self.samples(), time.monotonic()
        time.sleep(seconds)
        after, ended = self.samples(), time.monotonic()
        self._signal(signal.SIGSTOP)
        return after - before, ended - began

    def end(self) -> None:
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


#: By round and config: samples and seconds of the slice.
Rounds = list[list[tuple[int, float]]]


def interleaved(
    command: Sequence[str],
    configs: Sequence[Config],
    seconds: float,
    is_enough: Callable[[Rounds], bool],
    seed: int,
    variables: Optional[dict[str, str]] = None,
) -> Rounds:
    """Rounds of one slice of each config, in random order, until there are enough."""
    jobs: list[Job] = []
    rounds: Rounds = []
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="decisive-") as folder:
        guard = Guard()
        try:
            for config in configs:
                jobs.append(Job(command, config, folder, variables or {}, guard))
            while not is_enough(rounds):
                order = draw.sample(range(len(jobs)), len(jobs))
                measured = {index: jobs[index].slice(seconds) for index in order}
                rounds.append([measured[index] for index in range(len(jobs))])
        finally:
            for job in jobs:
                job.end()
            guard.end()
    return rounds


def rate(rounds: Rounds, index: int) -> float:
    """Samples per second of a config over all of its slices."""
    return sum(each[index][0] for each in rounds) / sum(each[index][1] for each in rounds)


def ratio(rounds: Rounds, index: int, base: int = 0) -> dict[str, float]:
    """How many times as fast a config is as another, with a 95% interval by the jackknife over rounds."""
    whole = math.log(rate(rounds, index) / rate(rounds, base))
    count = len(rounds)
    if count < 3:
        return {"value": math.exp(whole), "low": 0.0, "high": math.inf}
    parts = [rounds[:left] + rounds[left + 1 :] for left in range(count)]
    logs = [math.log(max(rate(part, index), 1e-9) / max(rate(part, base), 1e-9)) for part in parts]
    error = (count - 1) / math.sqrt(count) * statistics.stdev(logs)
    half = STUDENT * error
    return {"value": math.exp(whole), "low": math.exp(whole - half), "high": math.exp(whole + half)}
