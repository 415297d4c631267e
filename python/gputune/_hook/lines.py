"""Finds the lines of a script that take its time: samples the stack of a thread some fifty times a second.

Python runs one thread at a time: the thread that holds the interpreter's lock (the GIL). The sampler waits for the
lock until the other thread releases it, or for the switch interval of 5 ms (`sys.setswitchinterval`). So samples come
late. Three measures correct for that:

- Each sample counts for the time since the sample before. A call that holds the lock for long loses samples, but no
  time.
- Late samples are marked: the sampler sees a long call after its end, in its own or a later line.
- The switch interval is cut, unless that slows another Python thread down. With the full interval no sample would fall
  into the first 5 ms of code that computes in Python.

The delay also shows the thread's state. A thread that computes in torch has released the lock; a thread that runs
Python keeps it for at least the interval.

The sampling thread is started without `threading`, so no code counts it or waits for it. It ends before a fork and
starts again after it: no child inherits a held lock, and Python prints no warning about threads.
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

#: Mean seconds between two samples. The time varies by half, so that samples do not keep pace with training steps.
_BETWEEN = 0.02
#: Share of a CPU that sampling may take. If samples take more, such as with very deep stacks, they become rarer.
_MOST_COST = 0.005
#: Reduced switch interval in seconds, the longest delay of a sample. A thread that waits for the lock wakes up once
#: per interval, which costs some 5 us. A shorter interval would cost several percent during calls that keep the lock.
_SWITCH_SECONDS = 2e-4
#: From <linux/prctl.h>.
_PR_SET_TIMERSLACK = 29
#: Seconds without another busy thread after which the interval may be cut again.
_CALM_SECONDS = 1.0
#: Samples between two checks of the other threads.
_LOOKS_UNTIL_NEXT = 10
#: Python's files in which threads wait, and functions of threads that do little but hand over batches.
_PYTHON = sysconfig.get_path("stdlib") + "/"
WAITING = tuple(
    _PYTHON + name
    for name in ("threading.py", "queue.py", "selectors.py", "socket.py", "concurrent/futures/", "multiprocessing/")
)
_HANDING_OVER = ("_feed", "_pin_memory_loop")
#: Seconds from which a sample is late: the interpreter's default switch interval plus the delay of a busy CPU.
_LATE = 0.010
#: Seconds to wait for the thread to end, which takes a fraction of a millisecond.
_PATIENCE = 1.0
#: Bytes of a worker's file, most bytes of its first line, and seconds between writes; the first write is sooner, as a
#: worker may end soon.
_LENGTH = 1 << 16
_HEAD = 24
_FIRST_WRITE, _WRITE = 0.25, 1.0


class Sampler:
    """Samples the stack of one thread from another thread."""

    def __init__(self, thread: int, look: Callable[[], Look]) -> None:
        self.table = LineTable()
        self.looks = 0
        self.cost = 0.0
        """CPU seconds that sampling took."""
        self.write: Optional[Callable[[LineTable], None]] = None
        """Writes the table to a file; called about once per second."""
        self._thread = thread
        self._look = look
        self._random = random.Random()  # leaves the script's random numbers unchanged
        self._last: Optional[float] = None  # time of the last sample
        self._wake: Any = None
        self._ended: Any = None
        self._busy_until = 0.0  # time until which other threads count as busy
        self._usual: Optional[float] = None  # the script's switch interval, if changed

    def start(self) -> None:
        if self._wake is not None:
            return
        self._wake, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        self._wake.acquire()
        self._ended.acquire()
        try:
            _thread.start_new_thread(self._run, (self._wake, self._ended))
        except RuntimeError:  # no more threads allowed, or Python is ending
            self._wake = None

    def stop(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.release()
            self._ended.acquire(timeout=_PATIENCE)
        self._restore()

    def forget(self) -> None:
        """Drops the sampling thread in a forked child, as it exists only in the parent."""
        self._wake = None
        self._restore()

    def _run(self, wake: Any, ended: Any) -> None:
        try:
            self._look_until(wake)
        except Exception:  # a failed sample must not fail the training
            pass
        finally:
            ended.release()

    def _look_until(self, wake: Any) -> None:
        clock, cpu = time.perf_counter, time.thread_time
        _wake_in_time()
        written = clock()
        last = written if self._last is None else self._last  # the time of a fork counts for the line that forked
        self._cut_interval(written)
        spent = cpu()
        between, pause = _BETWEEN, _FIRST_WRITE
        due = written + self._random.uniform(0.5, 1.5) * between
        delay = _RunDelay()
        while True:
            waits, delayed = due - clock(), delay.seconds()
            if wake.acquire(timeout=max(waits, 0.0)):
                break
            woken = clock()
            seen, if_held = self._look()  # comes first, as the sampled thread moves on
            now = clock()
            if if_held is not None and waits > 0 and delayed is not None:
                # The delay of the sample without the wait for a CPU: the wait for the interpreter's lock.
                held = woken - due - ((delay.seconds() or 0.0) - delayed)
                seen = if_held if held >= sys.getswitchinterval() else seen
            self.table.add(seen, now - last, 1, now - last if now - due > _LATE else 0.0)
            last = self._last = now
            if self.looks % _LOOKS_UNTIL_NEXT == 0:
                self._cut_interval(now)
            self.looks += 1
            if self.write is not None and now - written >= pause:
                self.write(self.table)
                written, pause = now, _WRITE
            before, spent = spent, cpu()
            self.cost += spent - before
            between += 0.1 * (max(_BETWEEN, (spent - before) / _MOST_COST) - between)
            due = clock() + self._random.uniform(0.5, 1.5) * between

    def _cut_interval(self, now: float) -> None:
        """Cuts the switch interval if no Python thread is busy except the sampler and its target, else restores it."""
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
        # The script may have set another interval since.
        if usual is not None and abs(sys.getswitchinterval() - _SWITCH_SECONDS) < _SWITCH_SECONDS * 0.01:
            sys.setswitchinterval(usual)


class _RunDelay:
    """Seconds that this thread has waited for a CPU. The rest of a sample's delay is the wait for Python's lock."""

    def __init__(self) -> None:
        try:
            self._file: Any = open(f"/proc/self/task/{_thread.get_native_id()}/schedstat", "rb", buffering=0)
        except OSError:
            self._file = None

    def seconds(self) -> Optional[float]:
        """Seconds since the thread began; `None` if the kernel does not count them.

        Source: Linux, Documentation/scheduler/sched-stats.rst.
        """
        try:
            self._file.seek(0)
            return int(self._file.read(64).split()[1]) / 1e9
        except (AttributeError, OSError, ValueError, IndexError):
            return None


def _wake_in_time() -> None:
    """Makes the kernel end this thread's waits on time; the default is up to 50 us later (`man 2 prctl`)."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    except (AttributeError, OSError):  # another system than Linux
        pass


def _is_busy(frame: Optional[FrameType]) -> bool:
    """True if a thread may run its own code: it neither waits in Python's libraries nor hands over batches."""
    if frame is None or frame.f_code.co_filename.startswith(WAITING):
        return False
    while frame is not None and frame.f_code.co_name not in _HANDING_OVER:
        frame = frame.f_back
    return frame is None


_sampler: Optional[Sampler] = None
_is_registered = False


def start(sampler: Sampler) -> None:
    """Starts sampling in this process; replaces the sampler of the parent process."""
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
    """Starts sampling in a worker."""

    def begin(self, folder: str, name: str) -> None:
        written = _Written(os.path.join(folder, f"lines-{name}"))
        thread = _thread.get_ident()
        sampler = Sampler(thread, WorkerStacks(thread).seen)
        sampler.write = written.write
        start(sampler)
        at_exit(lambda: written.write(sampler.table), 0)


class _Written:
    """The rows of a table in a mapped file, which stays readable if this process is killed."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _LENGTH)  # a full disk raises here, instead of a signal later
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
    """The rows that a worker has written; `None` during a write and before the first write."""
    try:
        with open(path, "rb") as file:
            head = file.readline(_HEAD).split()
            length, check = (int(word) for word in head)
            text = file.read(length)
        return list(json.loads(text)) if len(text) == length and zlib.crc32(text) == check else None
    except (OSError, ValueError):
        return None


class LinesOfWorkers:
    """The tables of the training loader's workers. The files of ended workers are merged and removed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._ended = LineTable()
        self._loaders: set[str] = set()

    def table(self, loader: int, alive: list[int]) -> LineTable:
        self._loaders.add(str(loader))
        merged = LineTable()
        for name in os.listdir(self._folder):
            kind, *words = name.split("-")
            if kind != "lines" or len(words) != 3 or words[0] not in self._loaders:
                continue
            path = os.path.join(self._folder, name)
            rows = _read(path)
            if rows is None:
                continue
            if int(words[2]) in alive:
                merged.add_all(rows)
            else:
                self._ended.add_all(rows)
                os.unlink(path)
        merged.add_all(self._ended.rows())
        return merged
