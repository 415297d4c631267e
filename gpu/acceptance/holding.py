"""One handle to NVML, held by a process of its own while the checks run, so that the driver stays loaded."""

from __future__ import annotations

import sys
from pathlib import Path

from . import process
from .context import GPU_FOLDER


class Held:
    """The process that holds the handle. It ends with this process."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "held-nvml.txt"
        command = [sys.executable, "-m", "acceptance.nvml", "--hold"]
        self._child = process.start(command, env={"PYTHONPATH": str(GPU_FOLDER)}, stdout=self._path)

    def words(self) -> str:
        """`held`, or the reason why there is no handle; empty while the library opens."""
        try:
            return self._path.read_text(errors="replace").strip()
        except OSError:
            return ""

    def end(self) -> None:
        process.end(self._child)
