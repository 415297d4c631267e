"""Refuses changes of the user's files that bypass the replaced file functions (`file_calls.py`).

An audit hook (PEP 578) sees each file that Python opens, removes or renames. A change of a file older than the probe
reaches it only if no replaced function has redirected the change. The refusal may end the script, but a failed script
can be fixed, and a lost checkpoint cannot.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from typing import Any, Callable

from gputune._hook.scratch_layer import Real, ScratchLayer

_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
#: Suffixes of the bytecode of imports, which Python writes to a temporary file and renames.
_OF_IMPORTS = (".pyc",)
#: The start time of the probe, set by its first process.
BEGAN = "GPUTUNE_WRITES_SINCE"


class Refusals:
    """Refuses changes of files that are older than the probe."""

    def __init__(self, layer: ScratchLayer) -> None:
        self._layer = layer
        began = os.environ.get(BEGAN, "")
        self._began_ns = int(began) if began.isdecimal() else time.time_ns()
        os.environ[BEGAN] = str(self._began_ns)
        self._checks: dict[str, Callable[[Any], None]] = {
            "open": self._on_open,
            "os.remove": lambda args: self._on_change(args[0], args[1]),
            "os.rmdir": lambda args: self._on_change(args[0], args[1]),
            "os.truncate": lambda args: self._on_change(args[0], -1, follow=True),
            "os.rename": self._on_rename,
        }

    def install(self) -> None:
        checks = self._checks

        def audit(event: str, args: Any) -> None:
            if event == "open":  # the most frequent event, and mostly for reading
                flags = args[2]
                if flags.__class__ is int and not flags & _WRITING_FLAGS:
                    return
            if event in checks:
                checks[event](args)

        sys.addaudithook(audit)

    def _on_open(self, args: Any) -> None:
        path, _, flags = args
        if isinstance(flags, int) and flags & _WRITING_FLAGS and not os.path.isdir(path):  # `tempfile` opens a folder
            self._on_change(path, -1, follow=True)

    def _on_rename(self, args: Any) -> None:
        self._on_change(args[0], args[2])
        self._on_change(args[1], args[3])

    def _on_change(self, path: Any, folder_fd: Any, follow: bool = False) -> None:
        """Refuses a change of an older file. With `follow` the change affects the file that a link points to."""
        if not isinstance(path, (str, bytes)) or (isinstance(folder_fd, int) and folder_fd >= 0):
            return  # a descriptor, or a path below an open folder
        if self._must_refuse(os.fsdecode(path), follow):
            message = (
                "gputune protects files that were there before the probe, and this one is changed in a way that it "
                'cannot send elsewhere; let probes write with `[step] writes = "allow"`, or leave it out in a probe'
            )
            raise PermissionError(errno.EPERM, message, path)

    def _must_refuse(self, path: str, follow: bool) -> bool:
        layer = self._layer
        if path.startswith(layer.scratch) or path.endswith(_OF_IMPORTS) or ".pyc." in path:
            return False
        try:
            key = layer.guarded(path, follow)
            if key is None:
                return False
            found = Real.lstat(key)
        except OSError:
            return False
        return found.st_ctime_ns < self._began_ns and not _is_special(found.st_mode)


def _is_special(mode: int) -> bool:
    kind = mode & 0o170000
    return kind in (0o020000, 0o060000, 0o010000, 0o140000)  # devices, pipes and sockets (inode(7))
