"""The folder that state is kept in: the user's own, so that nobody else can put anything in its place."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Optional


class NotOwn(Exception):
    """The folder belongs to somebody else, or others can write to it."""


def default() -> Path:
    """The XDG Base Directory Specification's place for state."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "gputune" / "acceptance"


def own_folder(named: Optional[str]) -> Path:
    """The folder, made where it is not there, and checked."""
    folder = Path(os.path.abspath(named)) if named else default()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        # Of the folder itself, not of what a link leads to.
        found = folder.lstat()
    except OSError as error:
        raise NotOwn(f"{folder} cannot be made: {error.strerror}; name another with --state") from None
    wrong = None
    if not stat.S_ISDIR(found.st_mode):
        wrong = "is a link or a file"
    elif found.st_uid != os.geteuid():
        wrong = f"belongs to user {found.st_uid}"
    elif found.st_mode & 0o022:
        wrong = f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    if wrong:
        raise NotOwn(f"{folder} {wrong}; name another with --state, or mend that")
    return folder
