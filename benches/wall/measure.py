"""One config measured in a process of its own, as the grid and Optuna do it. Needs nothing but Python itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from typing import NamedTuple

from jobs import HERE, VARIABLES, Config, Job

TIMEOUT_S = 300


class Window(NamedTuple):
    """Seconds of warm-up, and of measuring after it."""

    warm_up: float
    seconds: float


def measure(python: str, job: Job, project: str, config: Config, window: Window) -> float:
    """Samples per second of the script in the folder `project`."""
    script = job.script
    if job.edits:
        script = f"edited_{script}"
        with open(os.path.join(project, job.script), encoding="utf-8") as file:
            edited = job.edited(file.read(), config)
        with open(os.path.join(project, script), "w", encoding="utf-8") as file:
            file.write(edited)
    counted = [python, os.path.join(HERE, "counted.py"), str(window.warm_up), str(window.seconds)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            [*counted, script, *job.arguments(config)],
            cwd=project,
            env=environment(project),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: object = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = f"none after {TIMEOUT_S} s"
        finally:
            end_group(process.pid)  # the loader's workers are still there
            process.wait()
        output.seek(0)
        text = output.read()
    found = re.search(r"^steps_per_second (\S+)$", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{config}: exit code {code}\n{text[-2000:]}")
    return float(found[1]) * config.batch_size


def environment(project: str) -> dict[str, str]:
    """The script's variables; what it leaves in the temporary folder goes with the project."""
    return {**os.environ, **VARIABLES, "TMPDIR": project}


def end_group(group: int) -> None:
    """Ends what is left of a process that leads a group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
