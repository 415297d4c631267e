"""What nvidia-smi says."""

from __future__ import annotations

import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Optional

from . import process

FIELDS = ("timestamp", "utilization.gpu", "memory.used", "power.draw", "clocks.sm", "clocks.mem")


def query(fields: str, kind: str = "gpu") -> list[list[str]]:
    """Rows of one query, or none where nvidia-smi is not there or fails."""
    command = ["nvidia-smi", f"--query-{kind}={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse(done.stdout) if done.returncode == 0 else []


def parse(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if "," in line or line.strip()]


def number(text: str) -> Optional[float]:
    """A number, or nothing where it says `[N/A]`."""
    try:
        return float(text)
    except ValueError:
        return None


def memory_used_mib(index: int = 0) -> Optional[float]:
    rows = query("memory.used")
    return number(rows[index][0]) if len(rows) > index else None


def compute_pids() -> set[int]:
    return {int(row[0]) for row in query("pid", "compute-apps") if row and row[0].isdigit()}


class Samples:
    """nvidia-smi's own readings of the first GPU, five a second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        command = [
            "nvidia-smi",
            f"--query-gpu={','.join(FIELDS)}",
            "--format=csv,noheader,nounits",
            "-i",
            "0",
            "-lms",
            "200",
        ]
        self.child = process.start(command, stdout=path)

    def stop(self) -> list[dict[str, float]]:
        process.end(self.child)
        return read_samples(self.path.read_text(errors="replace"))


def read_samples(text: str) -> list[dict[str, float]]:
    samples = []
    for row in parse(text):
        if len(row) != len(FIELDS):
            continue
        try:
            at = datetime.strptime(row[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
        except ValueError:
            continue
        values = {name: number(cell) for name, cell in zip(FIELDS[1:], row[1:])}
        samples.append({"at": at, **{name: value for name, value in values.items() if value is not None}})
    return samples


def mean(samples: list[dict[str, float]], name: str, since: float, until: float) -> Optional[float]:
    values = [sample[name] for sample in samples if since <= sample["at"] <= until and name in sample]
    return sum(values) / len(values) if values else None


def wait_for_memory(used_mib: float, tolerance_mib: float, limit: float) -> Optional[float]:
    """Seconds until no more than this is in use, or nothing where the limit came first."""
    begun = time.monotonic()
    while time.monotonic() - begun < limit:
        now = memory_used_mib()
        if now is not None and now <= used_mib + tolerance_mib:
            return time.monotonic() - begun
        time.sleep(0.05)
    return None
