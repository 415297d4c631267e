"""Sees which lines of a script take its time: looks at the stack of a thread some fifty times a second.

Python lets one thread run at a time, the one that holds the interpreter's lock (the GIL). A look waits for it: until the other
thread calls something that lets it go, or for the switch interval of 5 ms (`sys.setswitchinterval`). So looks come late, and
three things are done about it:

- Each counts for the time since the look before. A call that holds the lock for long costs looks, and no time.
- Those that came late are marked. Such a call is seen once it is over, in its own line or in the next that lets go.
- Where no other thread of Python would feel it, the interval is cut. Else no look would ever fall into the first 5 ms of
  code that computes in Python, but in what comes after it.

How late a look comes also tells what the thread does: one that computes in torch has let the lock go, and one that runs Python keeps it
for the interval at least.

The thread is no thread of `threading`: nobody counts it or waits for it. It ends before a fork and begins again after it, so
that no child inherits a lock or a thread that is not there, and no warning of threads comes up.
"""

from __future__ import annotations

import _thread
import ctypes
import json
import mmap
import os
import random
import sys
import sysconfig
import time
import zlib
from types import FrameType
from typing import Any, Callable, Optional

from gputune._client import at_exit
from gputune._hook.dataset_watch import AtWorkerStart
from gputune._hook.line_table import LineTable
from gputune._hook.stacks import Look, WorkerStacks

#: Seconds between two looks, mean. They vary by half, lest they keep step with the steps.
_BETWEEN = 0.02
#: Share of a processor that looking may take: beyond it looks become rarer, such as with very deep stacks.
_MOST_COST = 0.005
#: Switch interval in seconds where it may be changed: what a look may be late by. A thread that waits for the lock wakes up as often,
#: which costs some 5 us each time: with less than this, waiting for a call that keeps the lock would cost per cents.
_SWITCH_SECONDS = 2e-4
#: From <linux/prctl.h>.
_PR_SET_TIMERSLACK = 29
#: Seconds without another thread at work from which on it may be changed again.
_CALM_SECONDS = 1.0
#: Looks from one look at the other threads to the next.
_LOOKS_UNTIL_NEXT = 10
#: Files of Python in which threads wait, and functions of threads that do next to nothing but hand over batches.
_PYTHON = sysconfig.get_path("stdlib") + "/"
_WAITING = tuple(
    _PYTHON + name
    for name in ("threading.py", "queue.py", "selectors.py", "socket.py", "concurrent/futures/", "multiprocessing/")
)
_HANDING_OVER = ("_feed", "_pin_memory_loop")
#: Seconds from which on a look is late: the interpreter's usual switch interval, and what a busy processor adds to it.
_LATE = 0.010
#: Seconds to wait for the thread to end, which takes a fraction of a millisecond.
_PATIENCE = 1.0
#: What workers write down, in bytes, and how often, in seconds; sooner at first, as they may be gone soon.
_LENGTH = 1 << 16
_FIRST_WRITE, _WRITE = 0.25, 1.0
_HEAD = 24


class Sampler:
    """Looks at one thread, from another."""

    def __init__(self, thread: int, look: Callable[[], Look]) -> None:
        self.table = LineTable()
        self.looks = 0
        self.cost = 0.0
        """Seconds of processor time that it took."""
        self.write: Optional[Callable[[LineTable], None]] = None
        """Writes the table down, now and then."""
        self._thread = thread
        self._look = look
        self._random = random.Random()  # the script's own numbers stay what they are
        self._last: Optional[float] = None  # look
        self._wake: Any = None
        self._ended: Any = None
        self._busy_until = 0.0  # other threads are
        self._usual: Optional[float] = None  # the switch interval, where it was changed

    def start(self) -> None:
        if self._wake is not None:
            return
        self._wake, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        self._wake.acquire()
        self._ended.acquire()
        try:
            _thread.start_new_thread(self._run, (self._wake, self._ended))
        except RuntimeError:  # no more threads can be had, or Python ends
            self._wake = None

    def stop(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.release()
            self._ended.acquire(timeout=_PATIENCE)
        self._restore()

    def forget(self) -> None:
        """In a child that was forked: the thread is not there, and what it looked at is the parent's."""
        self._wake = None
        self._restore()

    def _run(self, wake: Any, ended: Any) -> None:
        try:
            self._look_until(wake)
        except Exception:  # it is about training, not about looking at it
            pass
        finally:
            ended.release()

    def _look_until(self, wake: Any) -> None:
        clock, cpu = time.perf_counter, time.thread_time
        _wake_in_time()
        written = clock()
        last = written if self._last is None else self._last  # what a fork took belongs to the line that made it
        self._hurry(written)
        spent = cpu()
        between, pause = _BETWEEN, _FIRST_WRITE
        due = written + self._random.uniform(0.5, 1.5) * between
        delay = _RunDelay()
        while True:
            waits, delayed = due - clock(), delay.seconds()
            if wake.acquire(timeout=max(waits, 0.0)):
                break
            woken = clock()
            seen, if_held = self._look()  # first of all: from here on the thread may go on
            now = clock()
            if if_held is not None and waits > 0 and delayed is not None:
                held = woken - due - ((delay.seconds() or 0.0) - delayed)
                seen = if_held if held >= sys.getswitchinterval() else seen
            self.table.add(seen, now - last, 1, now - last if now - due > _LATE else 0.0)
            last = self._last = now
            if self.looks % _LOOKS_UNTIL_NEXT == 0:
                self._hurry(now)
            self.looks += 1
            if self.write is not None and now - written >= pause:
                self.write(self.table)
                written, pause = now, _WRITE
            before, spent = spent, cpu()
            self.cost += spent - before
            between += 0.1 * (max(_BETWEEN, (spent - before) / _MOST_COST) - between)
            due = clock() + self._random.uniform(0.5, 1.5) * between

    def _hurry(self, now: float) -> None:
        """Has threads of Python hand over sooner, where that is between the two of us."""
        own = (_thread.get_ident(), self._thread)
        if any(thread not in own and _is_busy(frame) for thread, frame in sys._current_frames().items()):
            self._busy_until = now + _CALM_SECONDS
        if now < self._busy_until:
            self._restore()
            return
        interval = sys.getswitchinterval()
        if interval > _SWITCH_SECONDS * 1.01:
            self._usual = interval
            sys.setswitchinterval(_SWITCH_SECONDS)

    def _restore(self) -> None:
        usual, self._usual = self._usual, None
        # The script may have set its own meanwhile.
        if usual is not None and abs(sys.getswitchinterval() - _SWITCH_SECONDS) < _SWITCH_SECONDS * 0.01:
            sys.setswitchinterval(usual)


class _RunDelay:
    """How long this thread has waited for a processor, beside which a look is late for no other reason."""

    def __init__(self) -> None:
        try:
            self._file: Any = open(f"/proc/self/task/{_thread.get_native_id()}/schedstat", "rb", buffering=0)
        except OSError:
            self._file = None

    def seconds(self) -> Optional[float]:
        """Since the thread began (Linux, Documentation/scheduler/sched-stats.rst); nothing where the kernel does not count it."""
        try:
            self._file.seek(0)
            return int(self._file.read(64).split()[1]) / 1e9
        except (AttributeError, OSError, ValueError, IndexError):
            return None


def _wake_in_time() -> None:
    """Has the system end this thread's waits when they are over; usually it takes 50 us more (`man 2 prctl`)."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    except (AttributeError, OSError):  # another system than Linux
        pass


def _is_busy(frame: Optional[FrameType]) -> bool:
    """Whether another thread runs, or may run, code of its own: it neither waits nor hands over batches."""
    if frame is None or frame.f_code.co_filename.startswith(_WAITING):
        return False
    while frame is not None and frame.f_code.co_name not in _HANDING_OVER:
        frame = frame.f_back
    return frame is None


_sampler: Optional[Sampler] = None
_is_registered = False


def start(sampler: Sampler) -> None:
    """Looks from here on, in the place of what a parent looked at."""
    global _sampler, _is_registered
    _sampler = sampler
    if not _is_registered:
        _is_registered = True
        os.register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_forget)
        at_exit(_pause, -1000)
    sampler.start()


def _pause() -> None:
    if _sampler is not None:
        _sampler.stop()


def _go_on() -> None:
    if _sampler is not None:
        _sampler.start()


def _forget() -> None:
    global _sampler
    if _sampler is not None:
        _sampler.forget()
        _sampler = None


class WorkerLines(AtWorkerStart):
    """Begins to look."""

    def begin(self, folder: str, name: str) -> None:
        written = _Written(os.path.join(folder, f"lines-{name}"))
        thread = _thread.get_ident()
        sampler = Sampler(thread, WorkerStacks(thread).seen)
        sampler.write = written.write
        start(sampler)
        at_exit(lambda: written.write(sampler.table), 0)


class _Written:
    """The rows of a table in a file that others can read, also of a process that was killed."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _LENGTH)  # a full disk is an error here, and no signal later
            self._memory = mmap.mmap(descriptor, _LENGTH)
        finally:
            os.close(descriptor)

    def write(self, table: LineTable) -> None:
        rows = table.rows()
        text = json.dumps(rows).encode()
        while len(text) > _LENGTH - _HEAD:
            rows = rows[: len(rows) // 2]
            text = json.dumps(rows).encode()
        head = b"%010d %010d\n" % (len(text), zlib.crc32(text))
        self._memory[: len(head) + len(text)] = head + text


def _read(path: str) -> Optional[list[Any]]:
    """What a worker has written; nothing where it writes right now, or has written nothing yet."""
    try:
        with open(path, "rb") as file:
            head = file.readline(_HEAD).split()
            length, check = (int(word) for word in head)
            text = file.read(length)
        return list(json.loads(text)) if len(text) == length and zlib.crc32(text) == check else None
    except (OSError, ValueError):
        return None


class LinesOfWorkers:
    """What the workers of the training loader were seen at. Files of those that have ended are taken in, and removed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._ended = LineTable()
        self._loaders: set[str] = set()

    def table(self, loader: int, alive: list[int]) -> LineTable:
        self._loaders.add(str(loader))
        all_of_them = LineTable()
        for name in os.listdir(self._folder):
            kind, *words = name.split("-")
            if kind != "lines" or len(words) != 3 or words[0] not in self._loaders:
                continue
            path = os.path.join(self._folder, name)
            rows = _read(path)
            if rows is None:
                continue
            if int(words[2]) in alive:
                all_of_them.add_all(rows)
            else:
                self._ended.add_all(rows)
                os.unlink(path)
        all_of_them.add_all(self._ended.rows())
        return all_of_them
