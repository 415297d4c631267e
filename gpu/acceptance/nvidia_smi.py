"""What nvidia-smi says."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Optional

from . import process

# In the environment of all that is started: the identity of the chosen GPU.
ONLY = "GPUTUNE_ACCEPTANCE_GPU"
FIELDS = ("timestamp", "utilization.gpu", "memory.used", "power.draw", "clocks.sm", "clocks.mem")


def choose(visible: Optional[str], uuids: list[str]) -> Optional[str]:
    """The first GPU that CUDA_VISIBLE_DEVICES leaves, of those on the bus, in its order; a number counts in that order."""
    if visible is None:
        return uuids[0] if uuids else None
    word = visible.split(",")[0].strip()
    if word.isdigit():
        return uuids[int(word)] if int(word) < len(uuids) else None
    found = [uuid for uuid in uuids if word.startswith("GPU-") and uuid.startswith(word)]
    return found[0] if len(found) == 1 else None


def use_one_gpu() -> Optional[str]:
    """Makes one GPU the only one, for all that this process starts: CUDA, NVML and nvidia-smi number them differently."""
    # The driver lists them in the order of the bus.
    uuids = [row[0] for row in query("uuid")]
    chosen = choose(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ.pop(ONLY, None)
    if uuids:
        os.environ["CUDA_VISIBLE_DEVICES"] = chosen or ""
    else:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # it would also hide the stand-in of a dry run
    if chosen:
        os.environ[ONLY] = chosen
    return chosen


def only_gpu() -> Optional[str]:
    """The GPU that `use_one_gpu` chose."""
    return os.environ.get(ONLY)


def query(fields: str, kind: str = "gpu") -> list[list[str]]:
    """Rows of one query of the chosen GPU, or of all; none where nvidia-smi is not there or fails."""
    command = ["nvidia-smi", f"--query-{kind}={fields}", "--format=csv,noheader,nounits", *chosen_alone()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse(done.stdout) if done.returncode == 0 else []


def chosen_alone() -> list[str]:
    uuid = only_gpu()
    return ["-i", uuid] if uuid else []


def parse(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if "," in line or line.strip()]


def number(text: str) -> Optional[float]:
    """A number, or nothing where it says `[N/A]`."""
    try:
        return float(text)
    except ValueError:
        return None


def memory_used_mib() -> Optional[float]:
    rows = query("memory.used")
    return number(rows[0][0]) if rows else None


class Samples:
    """nvidia-smi's own readings of the chosen GPU, five a second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        command = [
            "nvidia-smi",
            f"--query-gpu={','.join(FIELDS)}",
            "--format=csv,noheader,nounits",
            *chosen_alone(),
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
