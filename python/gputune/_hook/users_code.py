"""Finds the user's own code on the stack."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Optional

from gputune._hook.imports import PACKAGES, is_installed

_OURS = os.path.join("gputune", "_hook") + os.sep
#: Most frames of packages between a function and the script that calls it, such as a package that wraps argparse. A
#: round number.
NEAR = 10


def users_frame(frame: Optional[FrameType], most: int) -> Optional[FrameType]:
    """The innermost frame of the user's own code; `None` if `most` frames of installed packages come first."""
    while frame is not None and most > 0:
        path = frame.f_code.co_filename
        if not path.startswith("<") and _OURS not in path:
            if not is_installed(path) and not path.startswith(sys.prefix + os.sep):
                return frame
            if any(part in PACKAGES for part in path.split(os.sep)):
                most -= 1
        frame = frame.f_back
    return None


def users_line(frame: Optional[FrameType]) -> Optional[str]:
    """The line of the user's own code near a frame, such as `train.py:12`."""
    found = users_frame(frame, NEAR)
    return None if found is None else f"{os.path.relpath(found.f_code.co_filename)}:{found.f_lineno}"
