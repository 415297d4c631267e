"""Counts the writes of a script while it trains: to the terminal, to files and through `logging`."""

from __future__ import annotations

import builtins
import io
import logging
import os
import sys
from typing import Any

from gputune._client import at_exit
from gputune._hook.call_sites import CallSites
from gputune._hook.patching import Function, replace

#: Modules that write summaries; the hook wraps their classes if they are loaded.
_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


class Logs:
    """Counts writes. Each write counts once, including its nested calls (flushing, other streams)."""

    def __init__(self) -> None:
        self.sites = CallSites("logging")
        self._changed: list[tuple[Any, tuple[str, ...]]] = []

    def install(self) -> None:
        # `_log` makes a record and passes it to `handle`. If other code makes the record, only `handle` is called.
        replace(logging.Logger, "_log", self.sites.around("logging"))
        replace(logging.Handler, "handle", self.sites.around("logging"))
        for name in ("fsync", "fdatasync"):
            replace(os, name, self.sites.around(name, is_counted=False))
        opened = builtins.open
        builtins.open = io.open = self._around_open(opened)  # type: ignore[assignment]

    def _restore(self) -> None:
        """Unwraps stdout and stderr at exit: Python flushes them after it has removed the modules."""
        for stream, names in self._changed:
            for name in names:
                stream.__dict__.pop(name, None)

    def begin(self) -> None:
        """Starts counting at the first step, when the script has set up its outputs."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            self._watch(stream, "print", is_terminal=True)
            self._changed.append((stream, ("write", "flush")))
        at_exit(self._restore, -500)
        for module in _WRITERS:
            kind = getattr(sys.modules.get(module), "SummaryWriter", None)
            for method in [] if kind is None else dir(kind):
                if method.startswith("add_") or method == "flush":
                    replace(kind, method, self.sites.around(method, is_counted=method != "flush"))
        self.sites.begin()

    def _around_open(self, original: Function) -> Function:
        timed = self.sites.around("open", is_counted=False)(original)

        def open(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(file, int) or not isinstance(mode, str) or not set(mode) & set("wax"):
                return original(file, mode, *args, **kwargs)
            opened = timed(file, mode, *args, **kwargs)
            self._watch(opened, "write")
            return opened

        return open

    def _watch(self, stream: Any, name: str, is_terminal: bool = False) -> None:
        """Wraps an open file, so that its writes are counted."""
        try:
            write = stream.write
            # On a terminal, writes with a line break count: `print` writes each argument separately, and a progress bar
            # rewrites its line.
            counts = (lambda text: "\n" in text or "\r" in text) if is_terminal else True
            stream.write = self.sites.around(name, counts)(write)
            stream.flush = self.sites.around("flush", is_counted=False)(stream.flush)
            if not is_terminal:
                stream.close = self.sites.around("close", is_counted=False)(stream.close)
        except (AttributeError, TypeError):  # a stream that takes no attributes
            pass
