"""How fast a script is by itself, without gputune: the time between lines that it prints, over a fixed number of steps."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import threading
import time
from dataclasses import dataclass

from job import Job, Variant
from process import end, environment

STEP = re.compile(r"step (\d+) ")


@dataclass
class Printed:
    """When which step was printed."""

    at: list[tuple[float, int]]

    def steps_per_second(self, warm_up: int) -> float:
        """From the first line at or after `warm_up` steps to the last."""
        lines = [line for line in self.at if line[1] >= warm_up]
        if len(lines) < 2:
            raise RuntimeError(f"too few steps were printed after {warm_up}: {[step for _, step in self.at]}")
        (began, first), (ended, last) = lines[0], lines[-1]
        return (last - first) / (ended - began)


def write(job: Job, variant: Variant, folder: pathlib.Path) -> pathlib.Path:
    """Writes a variant of a job as `train.py` into a folder of its own."""
    place = folder / job.name / variant.name
    place.mkdir(parents=True, exist_ok=True)
    script = place / "train.py"
    script.write_text(job.script(variant).source)
    return script


def command(job: Job, script: pathlib.Path, python: str) -> list[str]:
    if job.ranks == 1:
        return [python, str(script)]
    return [python, "-m", "torch.distributed.run", "--nproc-per-node", str(job.ranks), str(script)]


def samples_per_second(job: Job, variant: Variant, python: str, folder: pathlib.Path, seconds: float) -> float:
    """The rate of a variant over the job's fixed number of steps; cut off at the last line of `seconds`."""
    script = write(job, variant, folder)
    words = [*command(job, script, python), "--max-steps", str(job.steps())]
    with open(script.with_name("errors.txt"), "w+") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(), cwd=script.parent,
                                   start_new_session=True)
        clock = threading.Timer(seconds, end, [process])
        clock.start()
        try:
            printed = read(process)
        finally:
            clock.cancel()
            end(process)
        errors.seek(0)
        complaint = errors.read()
    try:
        return printed.steps_per_second(job.period()) * job.batch(variant)
    except RuntimeError as error:
        raise RuntimeError(f"{job.name} {variant.name}: {error}; {complaint[-600:]}") from error


def read(process: subprocess.Popen[str]) -> Printed:
    printed = Printed([])
    assert process.stdout is not None
    for line in process.stdout:
        if found := STEP.search(line):
            printed.at.append((time.perf_counter(), int(found[1])))
    process.wait()
    return printed


def clean(job: Job, folder: pathlib.Path) -> None:
    """Takes away what the scripts of a job left: checkpoints, records."""
    for path in (folder / job.name).glob("*/*"):
        if path.name != "train.py" and path.is_file():
            os.unlink(path)
