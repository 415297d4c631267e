"""The ways to find a config: gputune by how it starts probes, the whole grid, Optuna, loadtune. Each gives a `Run`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Iterator, Optional

from jobs import BASELINE, HERE, JOBS, VARIABLES, Config, Job, Space
from measure import Window, environment, measure

#: The search: what confirms the leaders comes on top of the probes. The step's time and precision are the defaults.
SPEC = """
[step]
command = {command}
adapter = "torch"
start = "{start}"
env = {{ {variables} }}

[space]
batch_size = {{ powers_of_two = [{batches[0]}, {batches[1]}]{batch} }}
workers = {{ values = {workers}{worker} }}
precision = {{ values = {precisions}{precision} }}

[baseline]
batch_size = {baseline.batch_size}
workers = {baseline.workers}
precision = "{baseline.precision}"

[search]
probes = {probes}
seed = {seed}
"""

TARGETS = {"batch": "dataloader.batch_size", "worker": "dataloader.num_workers", "precision": "torch.precision"}


@dataclass(frozen=True)
class Asked:
    """What is the same for all tools."""

    gputune: str
    python: str
    peers: Optional[str]
    space: Space
    probes: int
    window: Window


@dataclass
class Run:
    """What a tool did: its measurements as (seconds since its start, config, samples per second), and what it named."""

    seconds: float
    measured: list[tuple[float, Config, float]]
    pick: Config
    more: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Run:
        measured = [(seconds, Config(*config), rate) for seconds, config, rate in found["measured"]]
        return cls(found["seconds"], measured, Config(*found["pick"]), found["more"])


class Project(tempfile.TemporaryDirectory):  # type: ignore[type-arg]
    """A folder with the script and its data; each run has its own."""

    def __init__(self, job: Job, made: Optional[str] = None) -> None:
        super().__init__(prefix="wall-")
        self.path = os.path.join(self.name, "project")
        shutil.copytree(made or job.folder, self.path)

    def __enter__(self) -> str:
        super().__enter__()
        return self.path


def make_data(python: str, job: Job, project: str) -> None:
    """Before the clock runs."""
    if job.once:
        subprocess.run([python, job.script, *job.once], cwd=project, env=environment(project), check=True)


def gputune(asked: Asked, name: str, project: str, seed: int, start: str) -> Run:
    """A search; a probe's time is that of its line in the journal."""
    job = JOBS[name]
    spec, out = os.path.join(project, "wall.toml"), os.path.join(project, "..", "out")
    applied = {key: f', apply = "{target}"' if job.is_hooked else "" for key, target in TARGETS.items()}
    text = SPEC.format(
        command=json.dumps([asked.python, job.script, *job.options]),
        start=start,
        variables=", ".join(f'{key} = "{value}"' for key, value in VARIABLES.items()),
        batches=(asked.space.batch_sizes[0], asked.space.batch_sizes[-1]),
        workers=json.dumps(asked.space.workers),
        precisions=json.dumps(asked.space.precisions),
        baseline=BASELINE,
        probes=asked.probes,
        seed=seed,
        **applied,
    )
    with open(spec, "w", encoding="utf-8") as file:
        file.write(text)
    began, clock = time.time(), time.perf_counter()
    done = subprocess.run(
        [asked.gputune, "search", spec, "--out", out], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - clock
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}\n{done.stderr[-4000:]}")
    with open(os.path.join(out, "best.json"), encoding="utf-8") as file:
        best = json.load(file)
    with open(os.path.join(out, "journal.jsonl"), encoding="utf-8") as file:
        trials = [line for line in map(json.loads, file) if line.get("outcome") == "measured"]
    measured = [
        (trial["ended_at"] - began, Config(**trial["config"]), trial["throughput"]["value"]) for trial in trials
    ]
    return Run(seconds, measured, Config(**best["config"]), best["measuring"])


def grid(asked: Asked, name: str, project: str) -> Run:
    """Every config, in the order of nested loops."""
    began = time.perf_counter()
    measured = []
    for config in asked.space.configs():
        rate = measure(asked.python, JOBS[name], project, config, asked.window)
        measured.append((time.perf_counter() - began, config, rate))
    return Run(time.perf_counter() - began, measured, fastest(measured))


def optuna(asked: Asked, name: str, project: str, seed: int) -> Run:
    """As many trials as gputune has probes."""
    question = {
        "python": asked.python,
        "job": name,
        "project": project,
        "space": asked.space,
        "window": asked.window,
        "probes": asked.probes,
        "seed": seed,
    }
    command = [str(asked.peers), os.path.join(HERE, "optuna_peer.py"), json.dumps(question)]
    measured, seconds = [], 0.0
    for seconds, line in stamped(command, project):
        if line.startswith("{"):
            trial = json.loads(line)
            measured.append((seconds, Config(*trial["config"]), trial["rate"]))
    return Run(seconds, measured, fastest(measured))


def loadtune(asked: Asked, name: str, project: str) -> Run:
    """The script rewritten; a trial's time is that of the line after it. What it sets beside a config is left out."""
    job = JOBS[name]
    shutil.copy(os.path.join(HERE, "workloads", job.workload), os.path.join(project, "workload.py"))
    command = [str(asked.peers), "-m", "loadtune.cli", "tune", "workload.py"]
    command += ["--batch-size", str(BASELINE.batch_size), "--workers", str(BASELINE.workers)]
    command += ["--auto-batch", "--no-plots", "--save-raw", "raw.json", *(["--fast"] if job.is_fast else [])]
    ends, label, seconds = [], "", 0.0
    for seconds, line in stamped(command, project):
        if re.search(r"\] (baseline: |trial (?!1/)|raw data)", line):
            ends.append(seconds)
        if "best overall: " in line:
            label = line
    with open(os.path.join(project, "raw.json"), encoding="utf-8") as file:
        raw = json.load(file)
    results = [raw["baseline"], *(trial["result"] for trial in raw["trials"])]
    measured = [
        (end, as_config(result["knobs"]), result["throughput"])
        for end, result in zip(ends, results)
        if not result.get("error")
    ]
    knobs = {key: int(value) for key, value in re.findall(r"(workers|bs)=(\d+)", label)}
    pick = Config(
        knobs.get("bs", BASELINE.batch_size),
        knobs.get("workers", BASELINE.workers),
        "bf16" if ", amp" in label else BASELINE.precision,
    )
    return Run(seconds, measured, pick, {"label": label})


def as_config(knobs: dict[str, Any]) -> Config:
    """What of loadtune's settings is in the space."""
    precision = "bf16" if knobs["amp"] else BASELINE.precision
    return Config(knobs["batch_size"] or BASELINE.batch_size, knobs["num_workers"], precision)


def fastest(measured: list[tuple[float, Config, float]]) -> Config:
    return max(measured, key=lambda each: each[2])[1]


def stamped(command: list[str], project: str) -> Iterator[tuple[float, str]]:
    """The lines that a command prints, each with the seconds since its start; at its end an empty one."""
    began, printed = time.perf_counter(), ""
    variables = {**environment(project), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        with subprocess.Popen(
            command, cwd=project, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                printed += line
                yield time.perf_counter() - began, line
        seconds = time.perf_counter() - began
        if process.returncode != 0:
            errors.seek(0)
            raise RuntimeError(f"exit code {process.returncode}\n{printed[-4000:]}{errors.read()[-4000:]}")
    yield seconds, ""
