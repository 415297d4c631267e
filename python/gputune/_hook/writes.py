"""Keeps what a probe writes away from the user's files, where gputune asks the hook to do so.

Where the system gives no layer of its own (`GPUTUNE_WRITES=guard`), Python's functions for files and those of the usual
libraries write to the folder that `GPUTUNE_SCRATCH` names, which is thrown away after the probe. Programs that are no
Python are not covered.
"""

from __future__ import annotations

import os
import sys
from typing import Optional

#: How writes are kept away; the hook acts only for `guard`.
WRITES, SCRATCH = "GPUTUNE_WRITES", "GPUTUNE_SCRATCH"
_GUARD = "guard"

_is_installed = False


def install() -> None:
    """Guards this process, once; raises where that was asked for and cannot be done."""
    global _is_installed
    if _is_installed or os.environ.get(WRITES) != _GUARD:
        return
    _is_installed = True
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    scratch = os.environ.get(SCRATCH) or _own_scratch(ours)
    os.environ[SCRATCH] = scratch
    _install(scratch, ours)
    # Byte code goes past Python's functions; what is there is read, none is added to the user's folders.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def _own_scratch(ours: str) -> str:
    """Below the folder of the probe, which is thrown away after it, too."""
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
    """Ends the process where the guard was asked for and cannot be had: unguarded it might destroy files."""
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
