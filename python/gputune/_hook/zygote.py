"""The zygote: a process that has imported the script's packages, and forks a child for each probe.

Importing torch costs seconds of CPU time, a fork milliseconds. The zygote imports the installed packages that the first
probe had imported by its first step, but no module of the user. The child runs the whole script (`warm_child.py`).
`zygote_guards.py` lists the reasons against a fork.

The task is a file next to the socket `GPUTUNE_ZYGOTE`, with the suffix `.json`. For each fork the socket carries a line
of JSON and two file descriptors: the connection of the child's supervisor, and the pipe for the child's output.
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any, Optional

from gputune._hook import imports, warm_child
from gputune._hook.reads import EnvironmentReads
from gputune._hook.zygote_guards import Guards

#: The variable with the path of the socket of the gputune that started the zygote.
SOCKET = "GPUTUNE_ZYGOTE"

#: The variable with the descriptor of the mount namespace outside the zygote's overlays, set if it has overlays.
_WAY_OUT = "GPUTUNE_WAY_OUT"

#: Makes `torch.cuda.is_available()` ask NVML instead of creating a context, after which no child could use the GPU
#: (torch/cuda/__init__.py).
_ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"

_LONGEST = 1 << 22  # bytes of a line


class Link:
    """The connection to gputune."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unread = b""

    def say(self, **fields: Any) -> None:
        self._connection.sendall(json.dumps(fields).encode() + b"\n")

    def hear(self) -> tuple[Optional[dict[str, Any]], list[int]]:
        """The next line with its descriptors; `None` if gputune closed the connection, or the line is too long."""
        size = array.array("i").itemsize
        descriptors: list[int] = []
        while b"\n" not in self._unread:
            data, ancillary, _, _ = self._connection.recvmsg(1 << 16, socket.CMSG_SPACE(2 * size))
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(content[: len(content) - len(content) % size])
                    descriptors += numbers
            if not data or len(self._unread) > _LONGEST:
                return None, descriptors
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line), descriptors

    def close(self) -> None:
        self._connection.close()


def main() -> None:
    """Runs the zygote until gputune closes the connection."""
    address = os.environ.pop(SOCKET)
    with open(f"{address}.json", encoding="utf-8") as file:
        task: dict[str, Any] = json.load(file)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)
    link = Link(connection)
    way_out = os.environ.pop(_WAY_OUT, None)
    task["mounts"] = int(way_out) if way_out is not None else None
    start_environment = dict(os.environb)
    os.environ.setdefault(_ASK_NVML, "1")
    reads = EnvironmentReads()
    guards = Guards(task)
    with reads:
        _import_all(task["modules"])
    if os.fsencode(_ASK_NVML) not in start_environment:
        os.environ.pop(_ASK_NVML, None)
    changed = {name: value for name, value in os.environb.items() if start_environment.get(name) != value}
    reason = guards.against_imports(reads.names) or guards.against_fork()
    if reason is not None:
        link.say(unfit=reason)
        return
    gc.collect()
    gc.freeze()
    link.say(reads=sorted(reads.names), files=imports.files())
    _serve(link, task, guards, warm_child.Start(start_environment, changed, task))


def _import_all(modules: list[list[Any]]) -> None:
    for name, _, is_installed in modules:
        if is_installed and name not in sys.modules:
            try:
                importlib.import_module(name)
            except BaseException:  # the script imports the module itself, and shows the error
                pass


def _serve(link: Link, task: dict[str, Any], guards: Guards, start: warm_child.Start) -> None:
    before = signal.signal(signal.SIGCHLD, _reap)
    while True:
        request, descriptors = link.hear()
        if request is None:
            return
        reason = guards.against_fork()
        if reason is not None or len(descriptors) != 2:
            _close(descriptors)
            link.say(unfit=reason or "no descriptors arrived")
            continue
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            link.close()
            signal.signal(signal.SIGCHLD, before)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            warm_child.become_supervisor(descriptors, task, start)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        _close(descriptors)
        link.say(forked=pid)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _reap(*_: Any) -> None:
    """Collects the exit codes of supervisors that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
