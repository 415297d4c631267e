"""Notes which environment variables Python code reads while modules are imported."""

from __future__ import annotations

import os
from typing import Any


class EnvironmentReads:
    """Collects the names that are read inside the `with` block.

    A module that reads a variable at import keeps its value: a child with another value needs a new import. Reads by
    C code are not seen; `LOAD_TIME` (`src/probe/warm/mod.rs`) lists prefixes of variables that C code reads.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._original: Any = None

    def __enter__(self) -> EnvironmentReads:
        kind: Any = type(os.environ)
        original = self._original = kind.__getitem__

        def read(environment: Any, name: Any) -> Any:
            if isinstance(name, (str, bytes)):
                self.names.add(os.fsdecode(name))
            return original(environment, name)

        kind.__getitem__ = read
        return self

    def __exit__(self, *_: Any) -> None:
        kind: Any = type(os.environ)
        kind.__getitem__ = self._original
