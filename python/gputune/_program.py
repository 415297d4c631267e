"""Finds and runs the command `gputune`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig


class GputuneError(Exception):
    """The command `gputune` failed. The text is its message, and `exit_code` its exit code."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def path() -> str:
    """The path of the command: next to this Python, where pip installs it, else in `PATH`.

    Raises `GputuneError` if there is no command.
    """
    folders = (sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user"))
    installed = [os.path.join(folder, "gputune") for folder in folders]
    found = next((file for file in installed if os.access(file, os.X_OK)), None) or shutil.which("gputune")
    if found is None:
        raise GputuneError("the command gputune is not installed for this Python, and not in the PATH", 127)
    return found


def output(*arguments: str) -> str:
    """Runs the command and returns its standard output. Raises `GputuneError` if the command fails."""
    done = subprocess.run([path(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        raise failure(done.stderr, done.returncode)
    return done.stdout


def failure(message: str, code: int) -> GputuneError:
    """The error for a failed command. `message` is its standard error, and `code` the return code from `subprocess`."""
    exit_code = code if code >= 0 else 128 - code
    lines = f"\n{message.strip()}"
    text = lines.partition("\nerror: ")[2] or lines[1:]
    return GputuneError(text or f"gputune ended with exit code {exit_code}", exit_code)
