"""The folder that state is kept in: the user's own, so that nobody else can put anything in its place."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Optional

#: The user that a container shows for all that it knows no user of, such as who made its folders (user_namespaces(7)).
OUTSIDE = 65534


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
        # Where it really lies, so that the folders above are those that count.
        folder = folder.parent.resolve() / folder.name
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
    for parent in folder.parents:
        lack = wrong_with_parent(parent.stat())
        if lack:
            raise NotOwn(f"{folder} can be swapped, as {parent} {lack}; name another with --state, or mend that")
    return folder


def wrong_with_parent(found: os.stat_result) -> Optional[str]:
    """Why somebody else could put another folder in the place of one in this, if so.

    In a folder with the sticky bit, as /tmp has it, nobody but the owner can rename or delete what is in it (sticky(7))."""
    if found.st_uid not in (0, os.geteuid(), OUTSIDE):
        return f"belongs to user {found.st_uid}"
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return None
