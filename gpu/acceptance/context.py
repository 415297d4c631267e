"""What every check gets."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

from . import process
from .results import Report

GPU_FOLDER = Path(__file__).resolve().parent.parent
SPECS = GPU_FOLDER / "specs"
SCRIPTS = GPU_FOLDER / "scripts"


@dataclass
class Context:
    """The binary under test, where things go, and how long there is."""

    binary: str
    out: str
    state: str
    seconds: float
    tiny: bool = False
    #: Without a GPU, to try the checks themselves: nothing that it finds is of a GPU.
    dry: bool = False
    #: In a dry run: the folder that puts the stand-in for a device in place, if there can be one.
    card: str = ""
    begun: float = field(default_factory=time.monotonic)

    @property
    def device(self) -> str:
        """Where scripts train, as PyTorch names it."""
        return "cpu" if self.dry and not self.card else "cuda"

    @property
    def trains_on(self) -> str:
        """The same of a dry run, in words."""
        return "the stand-in for a device" if self.card else "the processor"

    @property
    def test_device(self) -> str:
        """The same as tests/python/harness.py names it."""
        if not self.dry:
            return "cuda"
        return "stand-in" if self.card else "cpu"

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begun)

    def folder(self, name: str) -> Path:
        path = Path(self.state) / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def environment(self) -> dict[str, str]:
        """`python3` in specs is the Python that runs the checks. Caches are in a folder of their own."""
        path = f"{self.python_folder()}:{os.environ.get('PATH', '')}"
        caches = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
        made = {"PATH": path, **{name: str(self.folder(f"cache/{name.lower()}")) for name in caches}}
        if self.card:
            # As tests/python/harness.py does it.
            beside = os.environ.get("PYTHONPATH")
            made["PYTHONPATH"] = os.pathsep.join([self.card, *([beside] if beside else [])])
            made["TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT"] = "0"
        return made

    def python_folder(self) -> str:
        """Beside /usr/bin/python3.12 may lie a `python3` that is another one: then one is made that is not."""
        own = Path(sys.executable)
        beside = own.with_name("python3")
        if beside.exists() and beside.resolve() == own.resolve():
            return str(own.parent)
        made = self.folder("bin") / "python3"
        # A link would not find the packages of a virtual environment.
        made.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        made.chmod(0o755)
        return f"{made.parent}:{own.parent}"

    def gputune(
        self, *arguments: object, limit: Optional[float] = None, more: Optional[dict[str, str]] = None
    ) -> process.Done:
        seconds = min(self.left, limit) if limit else self.left
        return process.run([self.binary, *map(str, arguments)], seconds, env={**self.environment(), **(more or {})})

    def probe(
        self, spec: Path, out: Path, limit: float = 120, **settings: object
    ) -> tuple[process.Done, dict[str, Any]]:
        """One probe's JSON, empty where it printed none."""
        chosen = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        done = self.gputune("probe", spec, "--json", "--quiet", "--out", out, *chosen, limit=limit)
        try:
            content = json.loads(done.stdout)
        except ValueError:
            content = {}
        return done, content if isinstance(content, dict) else {}

    def to_json(self) -> str:
        return json.dumps({key: value for key, value in asdict(self).items() if key != "begun"})


@dataclass(frozen=True)
class Check:
    """One entry of the list."""

    name: str
    about: str
    run: Callable[[Context, Report], None]
    limit_seconds: int
    needs_gpu: bool = True
    needs_torch: bool = True
    least_seconds: int = 0
    #: What it takes where nothing goes wrong, if that is more than what is worth a start.
    expected_seconds: int = 0
    #: Whether a dry run starts it: what it does without a GPU is not nothing.
    runs_dry: bool = False

    @property
    def least(self) -> int:
        """Less time than this is not worth a start."""
        return self.least_seconds or self.limit_seconds // 2

    @property
    def expected(self) -> int:
        """For the plan."""
        return self.expected_seconds or self.least


def reading(probe: dict[str, Any], metric: str) -> Optional[tuple[float, str]]:
    """A metric of the probe's first GPU with its source."""
    for gpu in probe.get("gpus") or []:
        found = gpu.get("readings", {}).get(metric)
        if found:
            return float(found["value"]), str(found["source"])
    return None


def host_reading(probe: dict[str, Any], metric: str) -> Optional[float]:
    found = (probe.get("host") or {}).get(metric)
    return float(found["value"]) if found else None


def near(seen: float, witness: float, share: float, absolute: float = 0.0) -> bool:
    return abs(seen - witness) <= max(share * abs(witness), absolute)
