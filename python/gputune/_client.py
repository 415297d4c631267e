"""The connection between this process and its probe.

`docs/protocol.md` describes the lines of the connection. The package and the torch hook both send through `Reporter`,
so a process has one connection. The first event opens it.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

SOCKET = "GPUTUNE_SOCKET"
CONFIG = "GPUTUNE_CONFIG"
TRIAL = "GPUTUNE_TRIAL"
#: A training process sets this variable for its child processes: `rank/ranks:pid`.
TRAINER = "GPUTUNE_TRAINER"

#: Variables in which launchers pass rank and world size: torchrun, Open MPI, MPICH, srun.
RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)

#: Seconds that the script has for its clean-up after gputune ends the run. Then the process ends.
EXIT_TIME = 10.0

#: Longest wait of a poll, in milliseconds. It is short, as another thread may already have read the awaited order.
_LONGEST_WAIT_MS = 200

#: True if the script reports its steps itself (`gputune.step`). Then the torch hook reports no steps.
user_steps = False

#: True if the torch hook reports the memory of the device. Then the script's steps report none.
hook_reports_memory = False

#: Samples that the torch hook has counted since the script last reported a step; `None` if it cannot count them.
handed_out: float | None = None


class Reporter:
    """Sends events of this process to its probe. A lost probe never makes a method raise."""

    _current: Reporter | None = None
    _is_found = False
    _home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _finding = threading.Lock()
    version = 1
    """Protocol version whose orders this process understands: 1 has `stop`, 2 adds `hold`, `configure` and `go`."""

    def __init__(self, probe: dict[str, Any], folder: str | None = None) -> None:
        #: Content of `probe.json`; without an adapter, the members that the environment provides.
        self.probe = probe
        self._folder = folder
        self._socket: socket.socket | None = None
        self._is_dead = False
        self._is_over = False  # `bye` was sent
        self._lock = threading.Lock()
        self._unread = b""
        self._is_stopped = False
        self._orders: deque[dict[str, Any]] = deque()

    @classmethod
    def current(cls) -> Reporter | None:
        """The reporter of this process; `None` outside a probe and in helpers of a training process."""
        reporter = cls.hooked()
        return reporter if reporter is not None and reporter.is_measured else None

    @classmethod
    def hooked(cls) -> Reporter | None:
        """Like `current`, but also under `gputune run`, where the hook applies settings and measures nothing.

        Until the reporter is connected, each call checks again if this process is a helper. Multiprocessing marks a
        helper only after `sitecustomize` and the imports of the script's main module have run.
        """
        if not cls._is_found:
            with cls._finding:
                if not cls._is_found:
                    cls._current = cls._find()
                    cls._is_found = True
        reporter = cls._current
        if reporter is None or (reporter._socket is None and (_is_worker() or _is_of_trainer())):
            return None
        return reporter

    @classmethod
    def move_to(cls, folder: str) -> None:
        """Moves this process to the probe whose `probe.json` is in `folder`."""
        cls._home = folder
        cls._forget()

    @classmethod
    def _find(cls) -> Reporter | None:
        folder = cls._home
        try:
            with open(os.path.join(folder, "probe.json"), encoding="utf-8") as file:
                probe = json.load(file)
            return cls(probe, folder) if isinstance(probe["socket"], (str, type(None))) else None
        except (OSError, ValueError, KeyError, TypeError):
            pass  # started without an adapter
        path = os.environ.get(SOCKET)
        if not path:
            return None
        trial = os.environ.get(TRIAL, "")
        return cls(
            {
                "version": 1,
                "socket": path,
                "trial": int(trial) if trial.isdecimal() else None,
                "config": config_of_environment(),
                "adapter": None,
                "apply": {},
            }
        )

    @classmethod
    def _forget(cls) -> None:
        """Drops the connection. After a fork it belongs to the parent, after `move_to` to the old probe."""
        global user_steps
        user_steps = False
        reporter, cls._current, cls._is_found = cls._current, None, False
        cls._finding = threading.Lock()  # another thread of the parent may hold the old lock
        if reporter is not None and reporter._socket is not None:
            reporter._socket.close()  # this process's copy; the parent's stays open

    @property
    def is_measured(self) -> bool:
        """True if gputune listens; false in a run of `gputune run`, whose `probe.json` has no socket."""
        return self.probe["socket"] is not None

    @property
    def folder(self) -> str | None:
        """The folder of `probe.json`; `None` without an adapter."""
        return self._folder

    @property
    def is_connected(self) -> bool:
        """True unless the connection is known to be broken."""
        return not self._is_dead

    def send(self, event: str, **fields: Any) -> None:
        """Sends an event. The first event is preceded by `hello`."""
        self.send_all([(event, fields)])

    def send_all(self, events: list[tuple[str, dict[str, Any]]]) -> None:
        """Sends events, given as names and members, in one write."""
        if self._is_dead:
            return
        lines = b"".join([_line(event, fields) for event, fields in events])
        with self._lock:
            try:
                if self._socket is None:
                    self._socket = self._connect()
                self._socket.sendall(lines, _NO_SIGNAL)
            except OSError:
                self._die()

    def is_stopped(self) -> bool:
        """True if gputune has ordered the end of the run. Does not wait."""
        self._hear(wait=False)
        return self._is_stopped

    def next_order(self, wait: bool) -> dict[str, Any] | None:
        """The next order other than `stop`; `None` if none has arrived and `wait` is false.

        Waiting also ends if gputune orders `stop` or is gone.
        """
        while not self._orders:
            self._hear(wait=wait)
            if self._is_stopped or self._is_dead or not (wait or self._orders):
                return None
        return self._orders.popleft()

    def _hear(self, wait: bool) -> None:
        """Reads the orders that have arrived; with `wait`, waits for the next."""
        connection = self._socket
        if wait and connection is not None:
            with suppress(OSError, ValueError):  # another thread may close it
                arrived = select.poll()
                arrived.register(connection, select.POLLIN)
                arrived.poll(_LONGEST_WAIT_MS)  # without the lock, so that other threads can send and read
        with self._lock:
            if self._socket is None:
                return
            try:
                data = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._die()
                return
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                try:
                    order = json.loads(line)
                    name = order["order"]
                except (ValueError, KeyError, TypeError):
                    continue  # an order of a later protocol version
                if name == "stop":
                    self._is_stopped = True
                else:
                    self._orders.append(order)

    def claim(self) -> None:
        """Tells future child processes that this process trains, so that they report nothing."""
        rank, ranks = rank_and_ranks()
        os.environ[TRAINER] = f"{rank}/{ranks}:{os.getpid()}"

    def end_run(self) -> None:
        """Ends the run with exit code 0, within `EXIT_TIME`, because gputune knows enough.

        Raises `SystemExit`, which `except Exception` does not catch.
        """
        self.send("done")
        timer = threading.Timer(EXIT_TIME, end_now)
        timer.daemon = True
        timer.start()
        raise SystemExit(0)

    def end_at_once(self) -> NoReturn:
        """Ends the run like `end_run`, but skips the rest of the script and its exit handlers."""
        self.send("done")
        self._bye(os.getpid())
        end_now()

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)  # not inherited by exec
        try:
            connection.connect(self.probe["socket"])
            connection.sendall(_line("hello", self._hello()), _NO_SIGNAL)
        except OSError:
            connection.close()
            raise
        pid = os.getpid()
        at_exit(lambda: self._bye(pid), -1000)  # after all other exit handlers that send
        return connection

    def say_bye(self) -> None:
        """Sends `bye` now, before an exit handler of this process sends it."""
        self._bye(os.getpid())

    def _bye(self, pid: int) -> None:
        """Sends `bye` once, as the process ends normally. Does nothing in a forked child of the process `pid`."""
        if pid == os.getpid() and self._socket is not None and not self._is_over:
            self._is_over = True
            self.send("bye")

    def _hello(self) -> dict[str, Any]:
        rank, ranks = rank_and_ranks()
        hello: dict[str, Any] = {"framework": framework(), "rank": rank, "ranks": ranks}
        hello.update(orders=True, version=self.version)
        if self._folder is not None and _write_stacks_on_signal(self._folder):
            hello["pid"] = os.getpid()
        return hello

    def _die(self) -> None:
        self._is_dead = True
        if self._socket is not None:
            self._socket.close()
            self._socket = None


_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Reporter._forget)


def config_of_environment() -> dict[str, Any]:
    """The config in `GPUTUNE_CONFIG`, set by a probe or by hand; empty if the variable is unset."""
    text = os.environ.get(CONFIG)
    if not text:
        return {}
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the environment variable {CONFIG} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f'the environment variable {CONFIG} must hold a JSON object such as {{"batch_size": 64}}')
    return config


def rank_and_ranks() -> tuple[int, int]:
    """Rank of this process and the number of ranks; 0 and 1 for a single process."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except Exception:  # partly imported, or another module of this name
        pass
    for rank, ranks in RANKS:
        try:
            found = int(os.environ[rank]), int(os.environ[ranks])
        except (KeyError, ValueError):
            continue
        if found[1] > 1:
            return found
    return 0, 1


def framework() -> str:
    """The loaded framework and its version."""
    names = ["torch", "tensorflow", "jax"]
    try:
        names.insert(0, sys.modules["keras"].backend.backend())  # Keras also loads frameworks that it does not use
    except Exception:  # not loaded, or another module of this name
        pass
    for name in names:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            return f"{name} {version}"
    return f"python {'.'.join(map(str, sys.version_info[:3]))}"


def at_exit(function: Callable[[], None], priority: int) -> None:
    """Calls `function` at the end of this process, perhaps twice.

    Before Python 3.13 a child forked by multiprocessing skips `atexit` and runs finalizers, highest priority first.
    """
    atexit.register(function)
    util = sys.modules.get("multiprocessing.util")
    if util is not None and sys.modules["multiprocessing.process"].parent_process() is not None:
        util.Finalize(None, function, exitpriority=priority)


def _is_worker() -> bool:
    """True if this process loads data: workers of loaders and pools are daemonic, ranks of a job are not."""
    processes = sys.modules.get("multiprocessing.process")  # if not loaded, this is no worker
    if processes is not None and processes.current_process().daemon:
        return True
    loading = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(loading, "_worker_info", None) is not None


#: The parent's `TRAINER` value. Read once, as `claim` overwrites the variable.
_STARTED_BY = os.environ.get(TRAINER, "")


def _is_of_trainer() -> bool:
    """True if a training process started this process, and this process is not another rank of the job."""
    if not _STARTED_BY:
        return False
    rank, ranks = rank_and_ranks()
    job, _, pid = _STARTED_BY.partition(":")
    return job == f"{rank}/{ranks}" and pid != str(os.getpid())


def _line(event: str, fields: dict[str, Any]) -> bytes:
    return (json.dumps({"event": event, **fields}) + "\n").encode()


def _write_stacks_on_signal(folder: str) -> bool:
    """Makes SIGUSR2 write the stacks of all threads to a file of the probe, unless the script uses the signal."""
    try:
        if signal.getsignal(signal.SIGUSR2) != signal.SIG_DFL:
            return False
        # The file stays open until the process ends.
        file = open(os.path.join(folder, f"stacks-{os.getpid()}.txt"), "w", encoding="utf-8")
        faulthandler.register(signal.SIGUSR2, file=file, all_threads=True)
    except (OSError, RuntimeError, ValueError):
        return False
    return True


def end_now(code: int = 0) -> NoReturn:
    """Ends this process without running its exit handlers."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code)
