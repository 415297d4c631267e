"""Measures the time that this process spends on imports until its first step."""

from __future__ import annotations

import sys
import time
from typing import Any, Optional

#: A wrapper for Python's function that imports modules that are not loaded yet. It gets the file name of that function,
#: so Python also omits the wrapper from tracebacks (`remove_importlib_frames` in Python/import.c).
_SOURCE = """
def find_and_load(*args, **kwargs):
    times.enter()
    try:
        return original(*args, **kwargs)
    finally:
        times.leave()
"""
_FILE = "<frozen importlib._bootstrap>"


class ImportTimes:
    """Adds up the time of the outermost imports, in any thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._began = 0.0
        self._original: Any = None

    def install(self) -> None:
        bootstrap: Any = sys.modules.get("_frozen_importlib")
        original = getattr(bootstrap, "_find_and_load", None)
        if original is None or self._original is not None:
            return
        names = {"times": self, "original": original}
        exec(compile(_SOURCE, _FILE, "exec"), names)
        self._original = original
        bootstrap._find_and_load = names["find_and_load"]

    def take(self) -> Optional[float]:
        """Ends the measurement. Returns the seconds; `None` if imports were not measured."""
        if self._original is None:
            return None
        bootstrap: Any = sys.modules["_frozen_importlib"]
        bootstrap._find_and_load = self._original
        self._original = None
        return self.seconds

    def enter(self) -> None:
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def leave(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began


TIMES = ImportTimes()
