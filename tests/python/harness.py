"""gputune's side of a probe, as the hook sees it: the folder on PYTHONPATH and the socket."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, NoReturn, Optional, TypeVar

#: The device of the scripts: `cpu`, a real device such as `cuda`, or `stand-in`, which is in the folder `card`.
DEVICE = os.environ.get("GPUTUNE_TEST_DEVICE", "cpu")

STAND_IN = "stand-in"
#: The type of that device in torch, such as `cpu` or `cuda`. The stand-in has the type `cuda`.
KIND = "cuda" if DEVICE == STAND_IN else DEVICE.partition(":")[0]
PYTHON = Path(__file__).resolve().parents[2] / "python"
SCRIPTS = Path(__file__).resolve().parent / "scripts"
LIMIT_SECONDS = 240
#: Most seconds to read the remaining events after a script has ended.
READING_SECONDS = 10
_CARD = Path(__file__).resolve().parent / "card"
#: True to run only the tests that the stand-in skips. CI runs the other tests on the stand-in.
_ONLY_REST = bool(os.environ.get("GPUTUNE_TEST_REST"))

_Test = TypeVar("_Test", type, Callable[..., Any])


def on_the_cpu(test: _Test) -> _Test:
    """Marks a test or a test class that runs only on the CPU."""
    setattr(test, "is_rest", True)
    return unittest.skipUnless(DEVICE == "cpu", "for the CPU")(test)


def needs_kernels(test: _Test) -> _Test:
    """Marks a test or a test class that needs compute kernels, which the stand-in does not have."""
    setattr(test, "is_rest", True)
    return unittest.skipIf(DEVICE == STAND_IN, "the stand-in has no kernels of its own")(test)


def wanted(tests: unittest.TestSuite) -> unittest.TestSuite:
    """Filters tests by GPUTUNE_TEST_REST, for `load_tests` of modules that also run on the stand-in."""
    if not _ONLY_REST:
        return tests
    kept = unittest.TestSuite()
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            kept.addTest(wanted(test))
        elif getattr(test, "is_rest", False) or getattr(getattr(test, test.id().rpartition(".")[2]), "is_rest", False):
            kept.addTest(test)
    return kept


def without_pauses(check: Callable[[], Any], tries: int = 4) -> None:
    """Repeats a failed check of measured times, because a process may pause for seconds on a busy machine."""
    for left in reversed(range(tries)):
        try:
            check()
            return
        except AssertionError:
            if left == 0:
                raise


@dataclass
class Result:
    """The events of a script, its exit code and its output."""

    events: list[dict[str, Any]] = field(default_factory=list)
    code: int = 0
    output: str = ""
    card: list[dict[str, Any]] = field(default_factory=list)
    """The entries that the stand-in logs (`card/record.py`): its callers, and waits for it. Empty on other devices."""
    files: dict[str, bytes] = field(default_factory=dict)
    """The files that the hook has written next to `probe.json`, by name."""

    @property
    def segments(self) -> list["Result"]:
        """The events under each of the successive settings of the process. An event `held` begins the next settings."""
        parts = [Result(code=self.code, output=self.output)]
        for event in self.events:
            if event["event"] == "held":
                parts.append(Result(code=self.code, output=self.output))
            parts[-1].events.append(event)
        return parts

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.named("step")

    @property
    def losses(self) -> list[float]:
        return [step["loss"] for step in self.steps if "loss" in step]

    @property
    def applied(self) -> set[str]:
        return {event["target"] for event in self.named("applied")}

    @property
    def errors(self) -> list[tuple[str, str]]:
        return [(event["kind"], event["message"]) for event in self.named("error")]

    @property
    def marks(self) -> list[str]:
        """The marks of the script, without two marks of the hook's own work: `flops` in the step whose operations are counted
        (test_hook_flops), and `memory` at the end of warm-up on a device (test_hook_device)."""
        return [event["name"] for event in self.named("mark") if event["name"] not in ("flops", "memory")]

    @property
    def facts(self) -> dict[str, Any]:
        """The last value of each fact. Facts of a rank N other than 0 have the prefix `rankN.`."""
        ranked = {0: ""}
        return {
            ranked.get(event["from_rank"], f"rank{event['from_rank']}.") + event["name"]: event["value"]
            for event in self.named("fact")
        }

    @property
    def phases(self) -> set[str]:
        return {event["name"] for event in self.named("phase")}


def write_folder(folder: Path, probe: Optional[dict[str, Any]]) -> None:
    """Writes the folder that gputune puts first on PYTHONPATH. `probe` is the content of `probe.json`, if there is one."""
    shutil.copytree(PYTHON / "gputune", folder / "gputune", ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / "gputune_hook-0.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gputune-hook\nVersion: 0.0.0\n")
    shutil.copy(PYTHON / "hook" / "entry_points.txt", info)
    shutil.copy(PYTHON / "hook" / "sitecustomize.py", folder)
    if probe is not None:
        (folder / "probe.json").write_text(json.dumps(probe))


class Listener:
    """Collects events. After each `stop_after` steps of rank 0 it orders the next settings of `segments`, and at last the end."""

    def __init__(self, path: str, stop_after: Optional[int], segments: list[dict[str, Any]]) -> None:
        self.events: list[dict[str, Any]] = []
        self._stop_after = stop_after
        self._segments = list(enumerate(segments, 1))
        self._is_to_hold = False
        self._connections: list[socket.socket] = []
        self._steps = 0
        self._lock = threading.Lock()
        self._readers: list[threading.Thread] = []
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(path)
        self._server.listen(64)
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Refuses new connections, and reads the remaining events of open connections."""
        self._server.shutdown(socket.SHUT_RDWR)  # `accept` still returns waiting connections (`unix(7)`)
        self._acceptor.join()
        self._server.close()
        end = time.monotonic() + READING_SECONDS
        for reader in self._readers:  # a child that outlives the script may keep a connection
            reader.join(max(end - time.monotonic(), 0.0))

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._readers.append(threading.Thread(target=self._read, args=(connection,), daemon=True))
            self._readers[-1].start()

    def _read(self, connection: socket.socket) -> None:
        rank = 0
        with connection, connection.makefile("rb") as lines:
            for line in _until_reset(lines):
                event = json.loads(line)
                if event["event"] == "hello":
                    rank = event["rank"]
                with self._lock:
                    self.events.append({**event, "from_rank": rank})
                    self._steps += event["event"] == "step" and rank == 0
                    is_enough = self._stop_after is not None and self._steps >= self._stop_after
                if event["event"] == "held":
                    number, settings = self._segments.pop(0)
                    self._order(order="configure", segment=number, config={}, apply=settings)
                    self._order(order="go")
                    self._steps, self._is_to_hold = 0, False
                elif is_enough and not self._segments:
                    self._stop_after = None
                    self._order(order="stop")
                elif is_enough and not self._is_to_hold:
                    self._is_to_hold = True
                    self._order(order="hold")

    def _order(self, **order: Any) -> None:
        for connection in self._connections:
            try:
                connection.sendall(json.dumps(order).encode() + b"\n")
            except OSError:
                pass


def _until_reset(lines: Any) -> Any:
    """Yields the lines of a connection. A process that ends before it reads its orders resets the connection."""
    try:
        yield from lines
    except ConnectionResetError:
        pass


_Run = TypeVar("_Run", bound=Callable[..., Result])


def _spared_the_race(run: _Run) -> _Run:
    """Repeats a run once if PyTorch itself aborted the process.

    A process may end right after its last backward pass, while autograd's thread for the device still releases Python objects.
    The interpreter then ends that thread within C++ code that allows no exceptions, which aborts the process. This was seen
    only with a device and on a busy machine, in about one of some hundred runs.
    """

    @functools.wraps(run)
    def spared(*args: Any, **kwargs: Any) -> Result:
        result = run(*args, **kwargs)
        is_race = result.code == -signal.SIGABRT and "terminate called without an active exception" in result.output
        return run(*args, **kwargs) if is_race and kwargs.get("device", DEVICE) != "cpu" else result

    return spared  # type: ignore[return-value]


@_spared_the_race
def run(
    script: str,
    apply: Optional[dict[str, Any]] = None,
    stop_after: Optional[int] = 40,
    env: Optional[dict[str, str]] = None,
    command: Optional[list[str]] = None,
    python: tuple[str, ...] = (),
    has_probe: bool = True,
    path: tuple[str, ...] = (),
    is_gone: bool = False,
    experiment: Optional[dict[str, Any]] = None,
    options: tuple[str, ...] = (),
    device: str = DEVICE,
    segments: tuple[dict[str, Any], ...] = (),
) -> Result:
    """Runs a script in a probe. `apply` maps targets to values; each parameter has the last part of the target's name.

    `stop_after=None` lets the script run to its end. `segments` are further settings, each applied after `stop_after` more
    steps. `is_gone` closes the socket before the script starts.
    """
    with tempfile.TemporaryDirectory(prefix="gputune-") as scratch:
        folder = Path(scratch) / "python"
        folder.mkdir()
        address = str(Path(scratch) / "socket")
        probe = {
            "version": 1,
            "socket": address,
            "trial": 1,
            "config": {},
            "adapter": "torch",
            "seed": 0,
            "apply": _settings(apply or {}),
            "live": bool(segments),
        }
        if experiment is not None:
            probe["experiment"] = experiment
        write_folder(folder, probe if has_probe else None)
        listener = Listener(address, stop_after, [_settings(segment) for segment in segments])
        if is_gone:
            listener.close()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(folder), *path)),
            "OMP_NUM_THREADS": "1",
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
            "PYTHONUNBUFFERED": "1",
            **({"GPUTUNE_SOCKET": address, "GPUTUNE_CONFIG": "{}", "GPUTUNE_TRIAL": "1"} if has_probe else {}),
            **_device_environment(device, scratch),
            **(env or {}),
        }
        if device == STAND_IN:
            environment["PYTHONPATH"] += os.pathsep + str(_CARD / "start")
        start = command or [sys.executable, *python]
        process = subprocess.run(
            [*start, str(SCRIPTS / script), *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_SECONDS,
            cwd=scratch,
        )
        if not is_gone:
            listener.close()
        output = process.stdout.decode(errors="replace")
        return Result(listener.events, process.returncode, output, _read_card(scratch), _written(folder))


def skip_loudly(test: unittest.TestCase, reason: str) -> NoReturn:
    """Skips a test, and prints the reason in the form that CI shows even if all tests pass."""
    print(f"SKIPPED: {test.id()}: {reason}", file=sys.stderr, flush=True)
    test.skipTest(reason)
    raise AssertionError


def _settings(apply: dict[str, Any]) -> dict[str, Any]:
    return {target: {"parameter": target.rsplit(".", 1)[-1], "value": value} for target, value in apply.items()}


def _device_environment(device: str, scratch: str) -> dict[str, str]:
    """The variables that tell a script on which device it trains."""
    if device != STAND_IN:
        return {"DEVICE": device}
    # With 0 PyTorch does not end autograd's device thread at exit. Up to Python 3.11 a thread that ends after the interpreter
    # reads freed memory: a rare "terminate called without an active exception"
    # (https://github.com/pytorch/pytorch/issues/38228).
    left = {"TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT": "0"}
    return {"DEVICE": "cuda", "CARD_LOG": str(Path(scratch) / "card.jsonl"), **left}


def _written(folder: Path) -> dict[str, bytes]:
    given = {"probe.json", "sitecustomize.py"}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name not in given}


def _read_card(scratch: str) -> list[dict[str, Any]]:
    path = Path(scratch) / "card.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
