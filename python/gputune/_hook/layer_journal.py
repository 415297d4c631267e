"""The journal through which the processes of a probe share their scratch layer: one line for each changed path.

All processes map a counter with the length of the journal, so checking for news costs no system call. A file lock
protects the writes; the system releases the lock of a process that ends.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
from typing import Any

# The original functions, before `file_calls` replaces them.
_open, _close, _read, _write, _lseek = os.open, os.close, os.read, os.write, os.lseek
_fstat, _ftruncate = os.fstat, os.ftruncate


class LayerJournal:
    """The journal of a scratch layer, in this process."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "changes.jsonl")
        counter = _open(os.path.join(folder, "length"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _fstat(counter).st_size < mmap.PAGESIZE:
                _ftruncate(counter, mmap.PAGESIZE)
            #: Bytes that all processes have written, as a view of one number.
            self.length = memoryview(mmap.mmap(counter, mmap.PAGESIZE)).cast("Q")
        finally:
            _close(counter)
        self.read_to = 0

    def news(self) -> list[list[Any]]:
        """The records of the lines that this process has not read yet."""
        length = self.length[0]
        if length == self.read_to:
            return []
        file = _open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._read_on(file, length)
        finally:
            _close(file)

    def _read_on(self, file: int, length: int) -> list[list[Any]]:
        _lseek(file, self.read_to, os.SEEK_SET)
        text = b""
        while len(text) < length - self.read_to:
            part = _read(file, length - self.read_to - len(text))
            if not part:
                break
            text += part
        self.read_to += len(text)
        return [json.loads(line) for line in text.splitlines()]

    def append(self, record: list[Any]) -> list[list[Any]]:
        """Writes a line. Returns all lines that this process has not read yet, the new line last."""
        file = _open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX)
            end: int = self.length[0]  # a killed process may have left part of a line there
            _lseek(file, end, os.SEEK_SET)
            line = json.dumps(record).encode() + b"\n"
            written = 0
            while written < len(line):
                written += _write(file, line[written:])
            self.length[0] = end + len(line)
            return self._read_on(file, end + len(line))
        finally:
            _close(file)  # also releases the lock
