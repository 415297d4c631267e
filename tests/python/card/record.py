"""Logs who calls CUDA and who waits for the device, as lines of JSON in the file that CARD_LOG names."""

from __future__ import annotations

import json
import linecache
import os
import re
import sys
import time
from typing import Any, Optional

LOG = "CARD_LOG"

_HOOK = f"{os.sep}gputune{os.sep}_hook{os.sep}"
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Lines of the hook that only forward a call of the script.
_HANDS_ON = re.compile(r"\b(original|call|_call_impl|closure|compiled)\(")

_file: Optional[int] = None


def write(kind: str, name: str, **more: Any) -> None:
    """Logs a call of `name`, or a wait for it, with the caller and its line. `kind` is `ask`, `wait` or `memory`."""
    global _file
    path = os.environ.get(LOG)
    if path is None:
        return
    if _file is None:
        _file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)  # the hook counts what is written through `open`
    who, where = _who()
    entry = {"kind": kind, "name": name, "by": who, "where": where, "pid": os.getpid(), "time": time.perf_counter()}
    os.write(_file, (json.dumps({**entry, **more}) + "\n").encode())


def _who() -> tuple[str, str]:
    """The caller and its line: the innermost frame of the script, or of the hook if it does not only forward a call."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        path, line = frame.f_code.co_filename, frame.f_lineno
        where = f"{os.path.basename(path)}:{line} {frame.f_code.co_name}"
        if _HOOK in path:
            if not _HANDS_ON.search(linecache.getline(path, line)):
                return "hook", where
        elif not path.startswith((_HERE, "<")) and "site-packages" not in path and "dist-packages" not in path:
            if not path.startswith(os.path.dirname(os.__file__)):
                return "script", where
        frame = frame.f_back
    return "library", ""
