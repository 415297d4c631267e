"""Counts calls of one kind in the training thread, with their time and their line in the script."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import threading
import time
from typing import Any, Callable, Optional, Union

import torch

from gputune._hook import dataset_watch
from gputune._hook.patching import Function, TensorMethod, is_compiling

#: The folder of the package.
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/"
#: The folder of torch.
TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + "/"
#: Files of torch through which a script reads and prints tensors.
_READING = (TORCH + "_tensor.py", TORCH + "_tensor_str.py")
_FOLDERS = (*sysconfig.get_paths().values(), *site.getsitepackages())
_LIBRARIES = tuple({path.rstrip("/") + "/" for path in _FOLDERS if path != sys.prefix})
#: The function that a call such as `torch.Tensor.item(tensor)` runs before the wrapper; it is no line of the script.
_CALLED_BY_CLASS = TensorMethod.__call__.__code__
#: Most sites in a report.
_MOST_TOLD = 5
#: Least share of the time for reporting a line without a counted call, such as a line that only flushes or closes.
_LEAST_TOLD = 0.05


class Site:
    """A line of the script with calls of one kind."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.calls = 0
        self.seconds = 0.0


class CallSites:
    """Counts calls of one kind. Nested calls and calls in datasets, in torch itself and in the hook do not count."""

    def __init__(self, kind: str) -> None:
        self.calls = 0
        self.seconds = 0.0
        self._kind = kind
        self._sites: dict[tuple[Any, int, str], Optional[Site]] = {}
        self._texts: dict[str, Site] = {}
        self._thread: Optional[int] = None
        self._is_inside = False
        self.is_left_out: Callable[[], bool] = lambda: False
        """True while the script is outside of steps, such as in evaluation."""

    def begin(self) -> None:
        """Starts counting, in this thread."""
        self._thread = threading.get_ident()
        os.register_at_fork(after_in_child=self._end)

    def _end(self) -> None:
        self._thread = None

    def around(
        self,
        name: str,
        is_counted: Union[bool, Callable[[Any], bool]] = True,
        matters: Optional[Callable[[Any], bool]] = None,
    ) -> Callable[[Function], Function]:
        """Makes wrappers for calls of `name`: they time a call if `matters`, and count a timed call if `is_counted`.

        Both conditions receive the first argument of the call.
        """
        counts = is_counted if callable(is_counted) else lambda first: is_counted
        clock, thread = time.perf_counter, threading.get_ident

        def make(original: Function) -> Function:
            def call(*args: Any, **kwargs: Any) -> Any:
                if self._thread is None or self._is_inside or is_compiling() or self._thread != thread():
                    return original(*args, **kwargs)
                if (matters is not None and not matters(args[0] if args else None)) or dataset_watch.is_inside():
                    return original(*args, **kwargs)
                if self.is_left_out():
                    return original(*args, **kwargs)
                found = self._site(sys._getframe(1), name)
                if found is None:
                    return original(*args, **kwargs)
                self._is_inside = True
                begin = clock()
                try:
                    return original(*args, **kwargs)
                finally:
                    seconds = clock() - begin
                    self._is_inside = False
                    self.seconds += seconds
                    found.seconds += seconds
                    if counts(args[0] if args else None):
                        self.calls += 1
                        found.calls += 1

            # `training_stacks.py` reads the kind of the call from this name in the stack.
            call.__code__ = call.__code__.replace(co_name=self._kind)
            return call

        return make

    def told(self, by_time: bool) -> Optional[str]:
        """The sites as one string, the slowest or the most frequent first."""
        sites = sorted(self._texts.values(), key=lambda found: -(found.seconds if by_time else found.calls))
        matters = [found for found in sites if found.calls or found.seconds > _LEAST_TOLD * self.seconds]
        return ", ".join(found.text for found in matters[:_MOST_TOLD]) or None

    def _site(self, frame: Any, name: str) -> Optional[Site]:
        if frame.f_code is _CALLED_BY_CLASS:
            frame = frame.f_back
        key = (frame.f_code, frame.f_lineno, name)
        if key not in self._sites:
            text = _where(frame)
            label = None if text is None else f"{text} {name}"
            self._sites[key] = None if label is None else self._texts.setdefault(label, Site(label))
        return self._sites[key]


def _where(frame: Any) -> Optional[str]:
    """The script's line that leads to a call; `None` for calls of torch and of the hook."""
    while frame is not None and frame.f_code.co_filename in _READING:
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith((OURS, TORCH)):
        return None
    first = frame
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    shown = frame or first
    return f"{os.path.basename(shown.f_code.co_filename)}:{shown.f_lineno}"


def is_library(path: str) -> bool:
    """True if a file belongs to Python, to an installed package, or to the hook."""
    return path.startswith(("<", OURS, *_LIBRARIES)) or "/site-packages/" in path or "/dist-packages/" in path
