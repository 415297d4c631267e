"""Keeps a probe's writes away from the user's files, if gputune requests it.

gputune sets `GPUTUNE_WRITES=guard` if the system offers no overlay. Then the file functions of Python and of common
libraries write to the folder `GPUTUNE_SCRATCH`, which is deleted after the probe. Programs other than Python are not
covered.
"""

from __future__ import annotations

import os
import sys
from typing import Optional

#: Variables that hold the mode and the scratch folder. The hook acts only in the mode `guard`.
WRITES, SCRATCH = "GPUTUNE_WRITES", "GPUTUNE_SCRATCH"
_GUARD = "guard"

_is_installed = False


def install() -> None:
    """Guards this process, once. Raises if the requested guard cannot be installed."""
    global _is_installed
    if _is_installed or os.environ.get(WRITES) != _GUARD:
        return
    _is_installed = True
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    scratch = os.environ.get(SCRATCH) or _own_scratch(ours)
    os.environ[SCRATCH] = scratch
    _install(scratch, ours)
    # Bytecode bypasses the replaced functions. Reading it is harmless; writing it would change the user's folders.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def _own_scratch(ours: str) -> str:
    """A scratch folder below the probe's folder, which is also deleted after the probe."""
    path = os.path.join(ours, "writes")
    os.makedirs(path, exist_ok=True)
    return path


def _install(scratch: str, ours: str) -> None:
    from gputune._hook.file_calls import FileCalls
    from gputune._hook.native_writers import NativeWriters
    from gputune._hook.refusals import Refusals
    from gputune._hook.scratch_layer import ScratchLayer

    layer = ScratchLayer(scratch, ours)
    FileCalls(layer).install()
    NativeWriters(layer).install()
    Refusals(layer).install()


def install_or_end() -> None:
    """Ends the process if the requested guard cannot be installed: an unguarded script might destroy files."""
    try:
        install()
    except Exception as error:
        _say(f"gputune's guard of files: {type(error).__name__}: {error}")
        os._exit(1)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
    try:
        from gputune._client import Reporter

        reporter: Optional[Reporter] = Reporter.current()
        if reporter is not None:
            reporter.send("error", kind="failed", message=message)
    except Exception:
        pass
