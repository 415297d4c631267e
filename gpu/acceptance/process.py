"""Child processes that never outlive their limit, and none of whose own children do."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

GRACE_SECONDS = 8.0


@dataclass
class Done:
    """How a child ended."""

    code: Optional[int]  # None: it was ended at its limit
    stdout: str
    stderr: str
    seconds: float

    @property
    def ended(self) -> str:
        return "was ended at its limit" if self.code is None else f"exit code {self.code}"

    def last_line(self) -> str:
        lines = [line for line in (self.stderr + "\n" + self.stdout).splitlines() if line.strip()]
        return lines[-1].strip()[:200] if lines else "nothing printed"


#: The last child of `run` in this process.
_last: list[Done] = []


def last_stderr() -> str:
    """What the last child of `run` wrote to stderr."""
    return _last[0].stderr if _last else ""


#: prctl(2): the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def end_with_parent() -> None:
    """In a child: whoever cuts these checks off, nothing keeps a GPU busy behind them."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(
    command: list[str], cwd: Optional[Path] = None, env: Optional[dict[str, str]] = None, stdout: Optional[Path] = None
) -> subprocess.Popen[str]:
    """Starts a command in a session of its own; what it prints goes to a file, or nowhere."""
    target = open(stdout, "w") if stdout else subprocess.DEVNULL
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
    finally:
        if stdout:
            target.close()  # type: ignore[union-attr]


def run(
    command: list[str],
    limit: float,
    cwd: Optional[Path] = None,
    env: Optional[dict[str, str]] = None,
    grace: Optional[float] = GRACE_SECONDS,
) -> Done:
    """Runs a command in a session of its own. At the limit: SIGINT, on which a search keeps what it has; then SIGKILL.

    Without `grace` there is no SIGINT."""
    begun = time.monotonic()
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    code: Optional[int]
    try:
        stdout, stderr = child.communicate(timeout=max(limit, 0.1))
        code = child.returncode
    except subprocess.TimeoutExpired:
        code = None
        family = children(child.pid)
        if grace is not None:
            child.send_signal(signal.SIGINT)
            try:
                child.communicate(timeout=grace)
            except subprocess.TimeoutExpired:
                pass
        end(child)
        kill(family)
        stdout, stderr = drain(child)
    _last[:] = [Done(code, stdout, stderr, time.monotonic() - begun)]
    return _last[0]


def drain(child: subprocess.Popen[str]) -> tuple[str, str]:
    """What a child that is gone printed; whoever else still holds the pipes cannot make this wait."""
    try:
        return child.communicate(timeout=2)
    except subprocess.TimeoutExpired:
        for pipe in (child.stdout, child.stderr):
            if pipe:
                pipe.close()
        return "", ""


def end(child: subprocess.Popen[str]) -> None:
    """Kills a child and all its descendants, also in sessions of their own. What gputune supervises ends with gputune."""
    kill([child.pid, *children(child.pid)] if child.poll() is None else [])
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        pass


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def children(pid: int) -> list[int]:
    """All descendants of a process. Not every kernel or sandbox has `/proc/<pid>/task/<tid>/children`."""
    offspring: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        parent = parent_of(int(entry)) if entry.isdigit() else None
        if parent is not None:
            offspring.setdefault(parent, []).append(int(entry))
    found, queue = [], [pid]
    while queue:
        new = offspring.get(queue.pop(), [])
        found += new
        queue += new
    return found


def parent_of(pid: int) -> Optional[int]:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def cpu_seconds(pid: int) -> Optional[float]:
    """Processor time of one process, without its children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


class Watch:
    """Calls a function at intervals in a thread, and keeps what it returned with the time."""

    def __init__(self, read, seconds: float) -> None:  # type: ignore[no-untyped-def]
        self.readings: list[tuple[float, object]] = []
        self._read, self._seconds, self._over = read, seconds, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                value = self._read()
            except Exception:  # a reading that fails is one less
                continue
            if value is not None:
                self.readings.append((time.time(), value))

    def stop(self) -> list[tuple[float, object]]:
        self._over.set()
        self._thread.join(timeout=5)
        return self.readings
