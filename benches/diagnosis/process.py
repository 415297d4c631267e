"""Runs commands for a bench, ends them with all they started, and says what machine it was."""

from __future__ import annotations

import os
import platform
import signal
import subprocess


def environment() -> dict[str, str]:
    # One OpenMP thread for each process; and virtual machines may announce AMX that they do not carry out.
    return {**os.environ, "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}


def run(command: list[str], seconds: float, cwd: str | os.PathLike[str] | None = None) -> tuple[int, str, str]:
    """The exit code, standard output and error of a command that is ended, with all it started, when time is up."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
                               env=environment(), start_new_session=True)
    try:
        out, error = process.communicate(timeout=seconds)
        return process.returncode, out, error
    except subprocess.TimeoutExpired:
        end(process)
        out, error = process.communicate()
        return 124, out, error


def end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
            return
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def machine(python: str) -> dict[str, str | int]:
    """What a result depends on besides the program."""
    torch = run([python, "-c", "import torch; print(torch.__version__)"], 60)[1].strip()
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    return {"torch": torch, "python": platform.python_version(), "cores": len(os.sched_getaffinity(0)),
            "processor": model or platform.machine(), "kernel": platform.release()}
