"""Gives the script a rendered file when it opens its own settings file, whose path is fixed in its code."""

from __future__ import annotations

import builtins
import io
import json
import os
from typing import Any

from gputune._hook.file_calls import READING_MODES, Replacement

#: The environment variable: a JSON object that maps the path of each settings file to the path of its rendered file.
VARIABLE = "GPUTUNE_REPLACED_FILES"

#: The rendered file of each path. A process that is forked for another probe gets other files.
_rendered: dict[str, str] = {}
_names: set[str] = set()
_is_installed = False


def install() -> None:
    """Replaces the files that the environment names, in this process and its child processes."""
    global _is_installed
    files = json.loads(os.environ.get(VARIABLE) or "{}")
    _rendered.clear()
    for path, rendered in files.items():
        _rendered[os.path.realpath(path)] = rendered
    _names.clear()
    _names.update(os.path.basename(path) for path in [*files, *_rendered])
    if _rendered and not _is_installed:
        _is_installed = True
        original = io.open

        def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            rendered = _replacement(file) if mode in READING_MODES else None
            if rendered is None:
                return original(file, mode, *args, **kwargs)
            kwargs.pop("opener", None)  # pathlib's opener (until Python 3.9) opens the original path
            return original(rendered, mode, *args, **kwargs)

        builtins.open = io.open = Replacement(open, original, "io")  # type: ignore[assignment]


def _replacement(file: Any) -> str | None:
    """The rendered file of a path; `None` for other paths and for descriptors."""
    if not isinstance(file, (str, bytes, os.PathLike)):
        return None
    path = os.fsdecode(file)
    # A link to a settings file may have any name.
    is_known = os.path.basename(path) in _names or os.path.islink(path)
    return _rendered.get(os.path.realpath(path)) if is_known else None
