"""Counts what a script writes while it trains: to the terminal, to files and through `logging`."""

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

#: Modules that write summaries, by name: their classes are looked at when they are loaded.
_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


class Logs:
    """Writes. Each counts once, and what it does within (flushing, other streams) is part of it."""

    def __init__(self) -> None:
        self.sites = CallSites("logging")
        self._changed: list[tuple[Any, tuple[str, ...]]] = []

    def install(self) -> None:
        # The first finds the caller and makes the record; the second is called by itself where others make it.
        replace(logging.Logger, "_log", self.sites.around("logging"))
        replace(logging.Handler, "handle", self.sites.around("logging"))
        for name in ("fsync", "fdatasync"):
            replace(os, name, self.sites.around(name, is_counted=False))
        opened = builtins.open
        builtins.open = io.open = self._around_open(opened)  # type: ignore[assignment]

    def _restore(self) -> None:
        """At exit: Python flushes its streams when modules are gone already."""
        for stream, names in self._changed:
            for name in names:
                stream.__dict__.pop(name, None)

    def begin(self) -> None:
        """At the first step the script has set up what it writes to."""
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
        """Has an open file count what is written to it."""
        try:
            write = stream.write
            # `print` writes each argument by itself; a progress bar writes its line anew.
            counts = (lambda text: "\n" in text or "\r" in text) if is_terminal else True
            stream.write = self.sites.around(name, counts)(write)
            stream.flush = self.sites.around("flush", is_counted=False)(stream.flush)
            if not is_terminal:
                stream.close = self.sites.around("close", is_counted=False)(stream.close)
        except (AttributeError, TypeError):  # a stream that takes no attributes
            pass
