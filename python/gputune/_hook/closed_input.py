"""Notes the line of a script that asks for input, which a probe does not have.

The standard input of a probe is a terminal without input. `input()` raises `EOFError`, and `sys.stdin.readline()`
returns an empty string. A script may then go on without an answer, or ask forever. `getpass`, Click and Rich use these
two functions.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from typing import Any

from gputune._client import Reporter

#: The file with the first line that asked, next to the folder of this package.
FILE = "asked-for-input.txt"


def install() -> None:
    """Watches the standard input of this process, if it is the terminal of a probe."""
    if Reporter.current() is None or type(sys.stdin) is not io.TextIOWrapper or not sys.stdin.isatty():
        return
    original, stdin = builtins.input, sys.stdin

    def input(*args: Any) -> str:
        try:
            return original(*args)
        except EOFError:
            _note()
            raise

    builtins.input = input
    # The original stream stays open, as `sys.__stdin__` still refers to it.
    sys.stdin = _Watched(
        stdin.buffer, stdin.encoding, stdin.errors, newline="\n", line_buffering=stdin.line_buffering
    )
    sys.stdin.mode = "r"  # type: ignore[misc]


class _Watched(io.TextIOWrapper):
    """A standard input that notes a read at its end."""

    def read(self, size: Any = -1, /) -> str:
        return _noted(super().read(size), size)

    def readline(self, size: Any = -1, /) -> str:  # type: ignore[override]
        return _noted(super().readline(size), size)


def _noted(text: str, size: Any) -> str:
    if not text and size != 0:
        _note()
    return text


def _note() -> None:
    """Writes the line of the user's code into the file, unless the file exists."""
    try:
        from gputune._hook.users_code import users_line

        line = users_line(sys._getframe(1))
        home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        with open(os.path.join(home, FILE), "x", encoding="utf-8", errors="replace") as file:
            file.write(line or "")
    except Exception:  # the script should run as before
        pass
