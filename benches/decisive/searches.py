"""One search of gputune, and the neighbour beside it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Iterator

HERE = os.path.dirname(os.path.abspath(__file__))
#: Processes of the neighbour.
NEIGHBOURS = 2
#: A search is ended if it takes so many times its time, and so many seconds more.
PATIENCE, PATIENCE_S = 3, 120

#: What the scripts of this folder get, whoever starts them.
VARIABLES = {"OMP_NUM_THREADS": "1"}

SLOW_LOADER = """
[step]
command = [{python}, {script}, "--batch-size", "{{batch_size}}", "--workers", "{{workers}}"]
adapter = "torch"
env = {{ OMP_NUM_THREADS = "1" }}

[space]
batch_size = {{ values = {batch_sizes} }}
workers = {{ values = {workers} }}

[baseline]
batch_size = {batch_sizes[0]}
workers = {workers[0]}

[search]
probes = {probes}
time = "{time:g}s"
seed = {seed}
"""

#: All configs are the same.
EQUAL = """
[step]
command = {command}
{adapter}

[space]
variant = {{ range = [0, {last}] }}

[baseline]
variant = 0

[search]
probes = {probes}
time = "{time:g}s"
seed = {seed}
"""


@dataclass(frozen=True)
class Binary:
    """A build of gputune. The hash of its file keeps results of different builds apart."""

    label: str
    path: str
    digest: str

    @classmethod
    def from_argument(cls, word: str) -> Binary:
        """`LABEL=PATH`, or a path whose last part is the label."""
        label, _, path = word.rpartition("=")
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()[:12]
        return cls(label or os.path.basename(path), os.path.abspath(path), digest)


@contextlib.contextmanager
def neighbour(is_there: bool, seed: int) -> Iterator[None]:
    """Processes that use the cores about half of the time."""
    command = [sys.executable, os.path.join(HERE, "neighbour.py")]
    count = NEIGHBOURS if is_there else 0
    processes = [subprocess.Popen([*command, str(seed + index)]) for index in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def slow_loader(python: str, batch_sizes: list[int], workers: list[int], probes: int, limit: float, seed: int) -> str:
    """The spec of a search over slow_loader.py."""
    script = json.dumps(os.path.join(HERE, "slow_loader.py"))
    return SLOW_LOADER.format(
        python=json.dumps(python),
        script=script,
        batch_sizes=batch_sizes,
        workers=workers,
        probes=probes,
        time=limit,
        seed=seed,
    )


def equal(command: list[str], is_torch: bool, configs: int, probes: int, limit: float, seed: int) -> str:
    """The spec of a search in which all configs are the same."""
    adapter = 'adapter = "torch"\nenv = { OMP_NUM_THREADS = "1" }' if is_torch else ""
    return EQUAL.format(
        command=json.dumps(command), adapter=adapter, last=configs - 1, probes=probes, time=limit, seed=seed
    )


def end(process: subprocess.Popen[bytes]) -> int:
    """Ends gputune, which ends its probes."""
    process.terminate()
    try:
        return process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def search(binary: Binary, spec: str, folder: str, limit: float) -> dict[str, Any]:
    """Runs a search. Keeps its files in `folder`, and returns what it named.

    Each search has a state folder of its own, so no search learns the noise from another.
    """
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    path, out = os.path.join(folder, "spec.toml"), os.path.join(folder, "out")
    with open(path, "w", encoding="utf-8") as file:
        file.write(spec)
    variables = {**os.environ, "XDG_STATE_HOME": os.path.join(folder, "state"), "NO_COLOR": "1"}
    began = time.monotonic()
    with (
        open(os.path.join(folder, "stdout.txt"), "wb") as printed,
        open(os.path.join(folder, "stderr.txt"), "wb") as log,
    ):
        words = [binary.path, "search", path, "--out", out]
        process = subprocess.Popen(words, stdout=printed, stderr=log, env=variables)
        try:
            code = process.wait(PATIENCE * limit + PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = end(process)
        except BaseException:
            end(process)
            raise
    found: dict[str, Any] = {"seconds": time.monotonic() - began, "limit": limit, "exit_code": code}
    try:
        with open(os.path.join(out, "best.json"), encoding="utf-8") as file:
            best = json.load(file)
    except FileNotFoundError:
        return {**found, "verdict": f"exit code {code}", "speedup": None, "config": None}
    return {
        **found,
        "verdict": best["verdict"],
        "speedup": best.get("speedup"),
        "unproven_speedup": best.get("unproven_speedup"),
        "config": best["config"],
        "probes": best.get("probes"),
        "rounds": best.get("rounds"),
        "alternatives": best.get("alternatives"),
        "stopped_because": best.get("stopped_because"),
        "elapsed_s": best.get("elapsed_s"),
        "device": best.get("device"),
    }
