"""Lists the modules that this process has imported by its first step, so that later probes need not import them again.

The zygote (`zygote.py`) reads the list. The list is a file next to `probe.json`, because it is too long for an event.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Optional

from gputune._hook.invocation import parse

FILE = "imports.json"

#: Names of folders that hold installed packages, not the user's own.
PACKAGES = ("site-packages", "dist-packages")
_OURS = ("__main__", "gputune", "sitecustomize", "usercustomize")
_STANDARD = os.path.dirname(os.path.abspath(os.__file__))


def write(folder: str) -> None:
    """Writes the file into the folder of `probe.json`. Readers see the whole file or no file."""
    arguments = _arguments()
    try:
        options, unfit = parse(arguments).options, None
    except ValueError as error:
        options, unfit = [], str(error)
    imports = {
        "pid": os.getpid(),
        "executable": sys.executable,
        "arguments": arguments,
        "options": options,
        "unfit": unfit,
        "modules": [module for module in map(_describe, list(sys.modules.items())) if module is not None],
        "environment": _changed_environment(),
    }
    path = os.path.join(folder, FILE)
    with open(path + ".part", "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(imports, file)
    os.rename(path + ".part", path)


def _arguments() -> list[str]:
    """The interpreter's command line, as `sys.argv` lacks the options."""
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]


def _changed_environment() -> dict[str, str]:
    """The variables that have changed since the process started (`/proc/PID/environ`, proc(5))."""
    with open("/proc/self/environ", "rb") as file:
        before = dict(variable.partition(b"=")[::2] for variable in file.read().split(b"\0"))
    return {name: value for name, value in os.environ.items() if before.get(os.fsencode(name)) != os.fsencode(value)}


def _describe(item: tuple[str, Any]) -> Optional[tuple[str, Optional[str], bool]]:
    """A module's name, its file, and whether it is installed; `None` if the module cannot be imported by its name."""
    name, module = item
    spec = getattr(module, "__spec__", None)
    if spec is None or name.partition(".")[0] in _OURS or getattr(spec, "name", None) != name:
        return None
    origin = spec.origin if spec.has_location else None
    is_frozen = spec.origin in ("built-in", "frozen")
    return (name, origin, is_frozen or (origin is not None and is_installed(origin)))


def is_installed(path: str) -> bool:
    """True if a module's file belongs to Python or to an installed package."""
    if any(part in PACKAGES for part in path.split(os.sep)):
        return True
    return os.path.abspath(path).startswith(_STANDARD + os.sep)


def files() -> dict[str, tuple[int, int]]:
    """Each imported file with its time of change (nanoseconds) and size (bytes), so that gputune notices a change."""
    found = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.startswith("/"):
            try:
                status = os.stat(path)
            except OSError:
                continue
            found[path] = (status.st_mtime_ns, status.st_size)
    return found
