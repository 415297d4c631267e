"""Writes the allocator's segments and blocks when memory runs out, for https://pytorch.org/memory_viz.

The allocator always knows its blocks. A history would also show which line made each block. The hook records no
history, as that slows every allocation down. Tested with a stand-in for a device, and not yet on a GPU.
"""

from __future__ import annotations

import os

import torch

from gputune._client import Reporter
from gputune._hook.devices import is_in_use

#: The file, next to `probe.json`. gputune moves it next to the log if the probe runs out of memory.
FILE = "memory.pickle"

#: Limits of a file, both round numbers: a pickled block takes about 100 bytes.
MOST_BYTES = 32 << 20
MOST_BLOCKS = 300_000


class MemorySnapshot:
    """Writes a file the first time that memory runs out under the current settings."""

    def __init__(self) -> None:
        self._is_written = False

    def begin_anew(self) -> None:
        """Removes the file of the last settings, as the script went on after memory ran out."""
        if self._is_written:
            self._is_written = False
            _remove(_path())

    def write(self) -> None:
        """Writes the file, unless another rank has written it or the state is too large. Never raises."""
        dump = getattr(getattr(torch.cuda, "memory", None), "_dump_snapshot", None)
        path = _path()
        if self._is_written or dump is None or not path or not is_in_use("cuda"):
            return
        self._is_written = True
        part = f"{path}.{os.getpid()}"
        try:
            if _blocks() > MOST_BLOCKS or os.path.exists(path):
                return
            dump(part)
            if os.path.getsize(part) <= MOST_BYTES:
                os.replace(part, path)
        except Exception:  # the device has failed, or the disk is full
            pass
        finally:
            _remove(part)


def _path() -> str:
    reporter = Reporter.current()
    folder = None if reporter is None else reporter.folder
    return os.path.join(folder, FILE) if folder else ""


def _blocks() -> int:
    kinds = ("active.all.current", "inactive_split.all.current")
    numbers = [torch.cuda.memory_stats(device) for device in range(torch.cuda.device_count())]
    return sum(stats.get(kind, 0) for stats in numbers for kind in kinds)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
