"""Who asks CUDA for something, and who waits for the device: lines of JSON in the file that CARD_LOG names."""

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
#: Lines on which the hook only hands on what the script does.
_HANDS_ON = re.compile(r"\b(original|call|_call_impl|closure|compiled)\(")

_file: Optional[int] = None


def write(kind: str, name: str, **more: Any) -> None:
    """Notes that `name` was asked for or waited for, by whom, and where."""
    global _file
    path = os.environ.get(LOG)
    if path is None:
        return
    if _file is None:
        _file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)  # by `open` the hook would count what is written
    who, where = _who()
    entry = {"kind": kind, "name": name, "by": who, "where": where, "pid": os.getpid(), "time": time.perf_counter()}
    os.write(_file, (json.dumps({**entry, **more}) + "\n").encode())


def _who() -> tuple[str, str]:
    """The innermost code that is neither the stand-in's nor a library's, and wants it for itself."""
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
