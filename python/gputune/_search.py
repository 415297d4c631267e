"""Searches with the command `gputune`, and shows how far the search is."""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Union

from . import _program
from ._client import Reporter
from ._study import Study, load

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Path = Union[str, "os.PathLike[str]"]
_OUT = Path("gputune-out")
#: Seconds between two looks at the status of the search, which writes it twice a second.
_LOOK_TIME = 0.5
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


class Options(TypedDict, total=False):
    """The options of `gputune search` and `gputune tune`, with `_` in place of `-`."""

    time: str
    probes: int
    strategy: str
    set: Mapping[str, Any]
    slots: int
    fresh: bool
    accept_changes: bool
    warm_start: Sequence[_Path]


def tune(
    script: _Path,
    args: Sequence[object] = (),
    *,
    out: _Path | None = None,
    progress: bool = True,
    **options: Unpack[Options],
) -> Study:
    """Finds the config that trains a script fastest, as `gputune tune` does.

    This Python runs a script that ends in `.py`. Any other name is a command, such as `torchrun`. Ctrl-C ends the search
    and keeps its results: `gputune.load` returns them, and the same call continues the search.

    Raises `GputuneError` if the search fails or finds no config.
    """
    command = [str(script), *map(str, args)]
    if command[0].endswith(".py"):
        command.insert(0, sys.executable)
    given = [] if out is None else ["--out", str(out)]
    return _run(["tune", "--quiet", *given, *_arguments(options), "--", *command], out, progress)


def search(
    spec: _Path | Mapping[str, Any],
    *,
    out: _Path | None = None,
    progress: bool = True,
    **options: Unpack[Options],
) -> Study:
    """Finds the config that trains fastest, as `gputune search` does.

    `spec` is a file, or a mapping with the tables of a spec. A mapping is written to `gputune.toml` in the folder
    `out`, by default `gputune-out/spec`. In a mapping, `cwd` is relative to the current folder, which is also its
    default. Ctrl-C and errors are as for `tune`.
    """
    if isinstance(spec, Mapping):
        out = _OUT / "spec" if out is None else Path(out)
        spec = _written(spec, out)
    given = [] if out is None else ["--out", str(out)]
    return _run(["search", str(spec), "--quiet", *given, *_arguments(options)], out or Path(spec).parent, progress)


def _written(tables: Mapping[str, Any], folder: Path) -> Path:
    step = dict(tables.get("step", {}))
    step["cwd"] = os.path.abspath(step.get("cwd", "."))
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{_toml(name)} = {_toml(table)}\n" for name, table in {**tables, "step": step}.items()]
    file = folder / "gputune.toml"
    file.write_text("".join(lines), encoding="utf-8")
    return file


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml(name)} = {_toml(part)}' for name, part in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, (str, int, float)):
        return json.dumps(value, ensure_ascii=False)
    raise TypeError(f"a spec cannot have the value {value!r}")


def _arguments(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if name not in Options.__annotations__:
            raise TypeError(f"there is no option {name!r}; the options are {', '.join(Options.__annotations__)}")
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option
        elif isinstance(value, Mapping):
            for parameter, setting in value.items():
                text = setting if isinstance(setting, str) else json.dumps(setting)
                yield from (option, f"{parameter}={text}")
        elif isinstance(value, (list, tuple)):
            for part in value:
                yield from (option, str(part))
        elif value is not None and value is not False:
            yield from (option, str(value))


def _run(arguments: list[str], folder: _Path | None, is_shown: bool) -> Study:
    if Reporter.hooked() is not None:
        raise _program.GputuneError("a training script must not search for its own config", 2)
    program, begin_ms, is_stopped = _program.path(), time.time() * 1000, False
    prctl = ctypes.CDLL(None).prctl  # loaded here, as it is not safe to load a library between fork and exec
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        # In its own session the search gets no Ctrl-C from the terminal, only the signal that this process sends. A
        # second signal would end the search at once. If this process is killed, such as a notebook's kernel,
        # the search gets SIGTERM and keeps its results.
        process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=printed,
            start_new_session=True,
            preexec_fn=lambda: prctl(_SET_DEATH_SIGNAL, signal.SIGTERM),
        )
        try:
            progress = _Progress(process.pid, begin_ms, folder)
            while process.poll() is None:
                try:
                    progress.look(is_shown)
                    process.wait(_LOOK_TIME)
                except subprocess.TimeoutExpired:
                    pass
                except KeyboardInterrupt:
                    process.send_signal(signal.SIGINT)
                    is_stopped = True
            progress.look(is_shown)
            progress.end()
        finally:
            if process.poll() is None:
                process.terminate()
        printed.seek(0)
        message = printed.read()
    if is_stopped:
        kept = "" if progress.folder is None else f"; its results are in {progress.folder}"
        raise KeyboardInterrupt(f"the search was stopped{kept}")
    if process.returncode != 0:
        raise _program.failure(message, process.returncode)
    if is_shown:
        sys.stderr.write(message)  # warnings
    if progress.folder is None:
        raise _program.GputuneError("the search wrote no status.json", 3)
    return load(progress.folder)


class _Progress:
    """Shows how far a search is: a line that changes on a terminal and in a notebook, else a line for each change."""

    def __init__(self, pid: int, begin_ms: float, folder: _Path | None) -> None:
        self.folder: Path | None = None
        self._pid = pid
        self._begin_ms = begin_ms
        self._given = [] if folder is None else [Path(folder)]
        self._is_live = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._width = 0
        self._last = (-1, -1)

    def look(self, is_shown: bool) -> None:
        """Reads `status.json`, and shows it if it has changed."""
        status = self._status()
        if status is None or not is_shown:
            return
        done = (status["searched"], status["rounds"])
        if self._is_live:
            line = _line(status)
            sys.stderr.write(f"\r{line:<{self._width}}")
            self._width = len(line)
        elif done != self._last:
            sys.stderr.write(f"{_line(status)}\n")
        self._last = done
        sys.stderr.flush()

    def end(self) -> None:
        """Ends the line that shows the progress."""
        if self._width > 0:
            sys.stderr.write("\n")

    def _status(self) -> dict[str, Any] | None:
        """The status of the search, in the folder whose `status.json` has its process id."""
        for folder in [self.folder] if self.folder else [*self._given, *_OUT.glob("*")]:
            try:
                status: dict[str, Any] = json.loads((folder / "status.json").read_bytes())
                if status["pid"] == self._pid and status["written_ms"] >= self._begin_ms:
                    self.folder = folder
                    return status
            except (OSError, ValueError, KeyError):
                continue  # the file does not exist yet, or is from another version
        return None


def _line(status: dict[str, Any]) -> str:
    searched, probes, elapsed = status["searched"], status["probes"], status["elapsed_s"]
    end = min(status.get("expected_s", status["time_s"]), status["time_s"])
    share = 1.0 if "ended" in status else min(elapsed / end, 1.0) if end > 0 else 0.0
    bar = "█" * round(share * 10)
    best = (status.get("best") or {}).get("times_better")
    rounds = f"{status['rounds']} round{'' if status['rounds'] == 1 else 's'}"
    parts = [f"{_clock(elapsed)}<{_clock(max(end - elapsed, 0))}", rounds]
    if best is not None:
        parts.append(f"best {best:.2f}x")
    return f"gputune: {share:4.0%}|{bar:<10}| {searched}/{probes} probes [{', '.join(parts)}]"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes:02}:{seconds:02}"
