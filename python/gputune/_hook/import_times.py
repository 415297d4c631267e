"""Measures how long this process imports modules, until its first step."""

from __future__ import annotations

import sys
import time
from typing import Any, Optional

#: The part of Python that carries out `import` for a module that is not loaded yet. The wrapper bears its file's name,
#: so Python leaves it out of tracebacks as it does with the original (`remove_importlib_frames` in Python/import.c).
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
    """Adds up the time from the outermost import to its end, of whichever thread it is."""

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
        """Ends the measuring; nothing where it was not measured."""
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
