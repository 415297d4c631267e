"""The connection between this process and the probe that it runs in.

`docs/protocol.md` describes the lines. Whoever sends them (the package, the torch hook) does so through `Reporter`, so
a process has one connection, opened when something is sent for the first time.
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
from typing import Any, NoReturn

SOCKET = "GPUTUNE_SOCKET"
CONFIG = "GPUTUNE_CONFIG"
TRIAL = "GPUTUNE_TRIAL"
#: Set by a process that trains, for those that it starts: `rank/ranks:pid`.
TRAINER = "GPUTUNE_TRAINER"

#: Rank and world size, as launchers put them into the environment: torchrun, Open MPI, MPICH, srun.
RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)

#: Seconds that an ordered end may take before the process is ended without its clean-up.
EXIT_TIME = 10.0

#: After which it is looked whether another thread has read what is waited for.
_LONGEST_WAIT_MS = 200

#: Whether the script reports its steps itself (`gputune.step`). Then the torch hook reports none.
user_steps = False


class Reporter:
    """Sends events of this process to its probe. No method raises because the probe is gone."""

    _current: Reporter | None = None
    _is_found = False
    _home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _finding = threading.Lock()
    version = 1
    """Of the protocol, as far as this process knows its orders: 1 has `stop`, 2 has `hold`, `configure` and `go`, too."""

    def __init__(self, probe: dict[str, Any], folder: str | None = None) -> None:
        #: What `probe.json` holds; without an adapter the same members, as far as the environment has them.
        self.probe = probe
        self._folder = folder
        self._socket: socket.socket | None = None
        self._is_dead = False
        self._is_over = False  # `bye` was said
        self._lock = threading.Lock()
        self._unread = b""
        self._is_stopped = False
        self._orders: deque[dict[str, Any]] = deque()

    @classmethod
    def current(cls) -> Reporter | None:
        """The reporter of this process; nothing outside a probe, and in processes that help one that trains.

        Whether it is such a helper is asked until it is connected: multiprocessing says so after `sitecustomize` and
        the imports of the script's main module have run.
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
        """From now on this process belongs to the probe whose `probe.json` is in this folder."""
        cls._home = folder
        cls._forget()

    @classmethod
    def _find(cls) -> Reporter | None:
        folder = cls._home
        try:
            with open(os.path.join(folder, "probe.json"), encoding="utf-8") as file:
                probe = json.load(file)
            return cls(probe, folder) if isinstance(probe["socket"], str) else None
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
        """After a fork: the connection is the parent's."""
        global user_steps
        user_steps = False
        reporter, cls._current, cls._is_found = cls._current, None, False
        cls._finding = threading.Lock()  # another thread of the parent may hold the old one
        if reporter is not None and reporter._socket is not None:
            reporter._socket.close()  # this process's copy; the parent's stays open

    @property
    def folder(self) -> str | None:
        """Where `probe.json` is; nothing without an adapter."""
        return self._folder

    @property
    def is_connected(self) -> bool:
        """Whether what is sent can arrive, as far as is known."""
        return not self._is_dead

    def send(self, event: str, **fields: Any) -> None:
        """Sends an event; the first is preceded by `hello`."""
        self.send_all([(event, fields)])

    def send_all(self, events: list[tuple[str, dict[str, Any]]]) -> None:
        """Sends events in one go: names and members."""
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
        """Whether gputune has ordered the end of the run. Does not wait."""
        self._hear(wait=False)
        return self._is_stopped

    def next_order(self, wait: bool) -> dict[str, Any] | None:
        """The next order beside `stop`; nothing where there is none, and none is to be waited for.

        Waiting ends with the order to stop, too, and where gputune is gone.
        """
        while not self._orders:
            self._hear(wait=wait)
            if self._is_stopped or self._is_dead or not (wait or self._orders):
                return None
        return self._orders.popleft()

    def _hear(self, wait: bool) -> None:
        """Reads what has arrived; with `wait`, what arrives next."""
        if wait and self._socket is not None:
            arrived = select.poll()
            arrived.register(self._socket, select.POLLIN)
            arrived.poll(_LONGEST_WAIT_MS)  # without the lock: other threads may send, and may read
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
                    continue  # of a later version
                if name == "stop":
                    self._is_stopped = True
                else:
                    self._orders.append(order)

    def claim(self) -> None:
        """Says to processes that are started from now on that this one trains, so that they report nothing."""
        rank, ranks = rank_and_ranks()
        os.environ[TRAINER] = f"{rank}/{ranks}:{os.getpid()}"

    def end_run(self) -> None:
        """Ends the run because gputune knows enough: exit code 0, and no later than after `EXIT_TIME`.

        Raises `SystemExit`, which `except Exception` lets pass.
        """
        self.send("done")
        timer = threading.Timer(EXIT_TIME, end_now)
        timer.daemon = True
        timer.start()
        raise SystemExit(0)

    def end_at_once(self) -> NoReturn:
        """Ends the run as `end_run` does, but skips what the script would do at its end."""
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
        at_exit(lambda: self._bye(pid), -1000)  # after all that still sends
        return connection

    def _bye(self, pid: int) -> None:
        """Says that this process ends in an orderly way; one that is killed cannot."""
        if pid == os.getpid() and self._socket is not None and not self._is_over:
            self._is_over = True
            self.send("bye")

    def _hello(self) -> dict[str, Any]:
        rank, ranks = rank_and_ranks()
        hello: dict[str, Any] = {"framework": framework(), "rank": rank, "ranks": ranks, "orders": True, "version": self.version}
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
    """What `GPUTUNE_CONFIG` holds, in a probe or set by hand; nothing without it."""
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
    """Rank of this process and the number of ranks; 0 and 1 for a process on its own."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except Exception:  # half imported, or not what it seems
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
    """The framework that is loaded, and its version."""
    names = ["torch", "tensorflow", "jax"]
    try:
        names.insert(0, sys.modules["keras"].backend.backend())  # Keras loads other frameworks than the one it uses
    except Exception:  # not loaded, or not what it seems
        pass
    for name in names:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            return f"{name} {version}"
    return f"python {'.'.join(map(str, sys.version_info[:3]))}"


def at_exit(function: Callable[[], None], priority: int) -> None:
    """Calls `function` at the end of this process, perhaps twice.

    A child that multiprocessing forked does not run `atexit` before Python 3.13, but finalizers, by falling priority.
    """
    atexit.register(function)
    util = sys.modules.get("multiprocessing.util")
    if util is not None and sys.modules["multiprocessing.process"].parent_process() is not None:
        util.Finalize(None, function, exitpriority=priority)


def _is_worker() -> bool:
    """Whether this process loads data: workers of loaders and pools are daemonic, ranks of a distributed job are not."""
    processes = sys.modules.get("multiprocessing.process")  # where it is not loaded, nobody started this as a worker
    if processes is not None and processes.current_process().daemon:
        return True
    loading = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(loading, "_worker_info", None) is not None


#: What the process that started this one says of itself. Read once: later the variable is this process's own.
_STARTED_BY = os.environ.get(TRAINER, "")


def _is_of_trainer() -> bool:
    """Whether a process that trains has started this one, which is not another rank of the job."""
    if not _STARTED_BY:
        return False
    rank, ranks = rank_and_ranks()
    job, _, pid = _STARTED_BY.partition(":")
    return job == f"{rank}/{ranks}" and pid != str(os.getpid())


def _line(event: str, fields: dict[str, Any]) -> bytes:
    return (json.dumps({"event": event, **fields}) + "\n").encode()


def _write_stacks_on_signal(folder: str) -> bool:
    """Makes SIGUSR2 write what all threads are doing to a file of the probe, unless the script uses the signal."""
    try:
        if signal.getsignal(signal.SIGUSR2) != signal.SIG_DFL:
            return False
        # The file stays open as long as the process lives.
        file = open(os.path.join(folder, f"stacks-{os.getpid()}.txt"), "w", encoding="utf-8")
        faulthandler.register(signal.SIGUSR2, file=file, all_threads=True)
    except (OSError, RuntimeError, ValueError):
        return False
    return True


def end_now(code: int = 0) -> NoReturn:
    """Ends this process, whatever else it has to do."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code)
