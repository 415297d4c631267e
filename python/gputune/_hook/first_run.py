"""Notes the modules, arguments, settings files, environment variables and loaders that a script uses in the first run.

Each process appends each note at once, as a line of JSON, to a file next to `probe.json`. So a killed process loses no
notes. The training loader and the precision are reported as facts, as in any probe.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Callable, Optional

from gputune._client import Reporter
from gputune._hook import importing
from gputune._hook.imports import is_installed
from gputune._hook.users_code import NEAR, users_frame, users_line

#: The file of a process has this name, then the process id.
FILE = "first-run-"

_KINDS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".env")
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_STANDARD: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())

#: Packages that may call the optimizer for the script. The outermost of these packages in the stack is the trainer.
_TRAINERS = ("deepspeed", "lightning", "pytorch_lightning", "transformers", "trl", "keras", "accelerate")


class FirstRun:
    """The notes of this process."""

    def __init__(self) -> None:
        self._noted: dict[str, None] = {}
        self._folder = ""
        self._pid = 0
        self._local = threading.local()

    def install(self) -> None:
        """Starts to note."""
        reporter = Reporter.current()
        self._folder, self._pid = (reporter.folder if reporter is not None else None) or "", os.getpid()
        sys.addaudithook(self._hear)
        self._watch_environment()
        importing.after("argparse", lambda module: self._watch_arguments(module.ArgumentParser))

    def note(self, what: str, value: Any) -> None:
        """Appends a line, unless it was written before or this process is a helper of another process."""
        line = json.dumps({what: value}, default=str)
        if line in self._noted or not self._folder or os.getpid() != self._pid or Reporter.current() is None:
            return
        self._noted[line] = None
        self._local.is_ours = True
        try:
            with open(os.path.join(self._folder, f"{FILE}{self._pid}.jsonl"), "a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:  # such as a full disk: this note is lost
            pass
        finally:
            self._local.is_ours = False

    def note_trainer(self) -> None:
        """Notes which package calls the optimizer. Call it at the end of a step."""
        packages = []
        frame: Optional[FrameType] = sys._getframe()
        while frame is not None:
            packages.append(str(frame.f_globals.get("__name__", "")).partition(".")[0])
            frame = frame.f_back
        found = [package for package in packages if package in _TRAINERS]
        self.note("trainer", found[-1] if found else "")

    def watch_loaders(self, kind: Any) -> None:
        """Notes each DataLoader: its arguments, and where it was made."""
        original: Callable[..., None] = kind.__init__

        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            place = users_line(sys._getframe(1))
            self.note("loader", {"place": place, "batch_size": loader.batch_size, "workers": loader.num_workers})

        kind.__init__ = __init__

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import":
            name = arguments[0]
            if isinstance(name, str) and "." not in name and name not in _STANDARD and not name.startswith("_"):
                self.note("module", name)
        elif event == "open" and not getattr(self._local, "is_ours", False):
            path, _, flags = arguments
            if isinstance(path, (str, bytes, os.PathLike)) and not (isinstance(flags, int) and flags & _CHANGES):
                with suppress(OSError):  # the working folder may be gone
                    self._note_file(os.path.abspath(os.fsdecode(path)))

    def _note_file(self, path: str) -> None:
        is_ours = self._folder and path.startswith(self._folder)
        is_of_python = is_installed(path) or path.startswith(sys.prefix + os.sep)
        if path.endswith(_KINDS) and not is_ours and not is_of_python:
            self.note("file", path)

    def _watch_environment(self) -> None:
        kind: Any = type(os.environ)
        get_item, get, names_of = kind.__getitem__, kind.get, kind.__iter__
        listed: set[str] = set()
        missing = object()

        def noted(name: Any, value: Any, is_set: bool) -> None:
            if name in listed:
                # Part of a copy of all variables, such as `dict(os.environ)`: nothing asks for this one.
                listed.discard(name)
            elif isinstance(name, str) and isinstance(value, (str, int)) and str(value).isdecimal():
                if users_frame(sys._getframe(2), 1) is not None:
                    self.note("variable", {"name": name, "value": int(value), "is_set": is_set})

        def __getitem__(environ: Any, name: Any) -> Any:
            value = get_item(environ, name)
            noted(name, value, True)
            return value

        def get_or(environ: Any, name: Any, default: Any = None) -> Any:
            value = get(environ, name, missing)  # gets a set variable by `__getitem__`, which notes it
            if value is missing:
                noted(name, default, False)
                return default
            return value

        def __iter__(environ: Any) -> Any:
            names = list(names_of(environ))
            if users_frame(sys._getframe(1), 1) is not None:
                listed.update(names)
            return iter(names)

        kind.__getitem__, kind.get, kind.__iter__ = __getitem__, get_or, __iter__

    def _watch_arguments(self, kind: Any) -> None:
        parse: Callable[..., Any] = kind.parse_known_args

        def parse_known_args(parser: Any, *args: Any, **kwargs: Any) -> Any:
            is_of_user = users_frame(sys._getframe(1), NEAR) is not None
            before = len(self._noted)
            parsed = parse(parser, *args, **kwargs)
            # The parser of a subcommand runs within the main parser. Then only the subcommand's options are noted, as
            # options of the main parser cannot follow a subcommand.
            if is_of_user and not any(line.startswith('{"arguments"') for line in list(self._noted)[before:]):
                self.note("arguments", _arguments(parser, parsed[0]))
            return parsed

        kind.parse_known_args = parse_known_args


def _arguments(parser: Any, parsed: Any) -> list[dict[str, Any]]:
    """The options of a parser, each with its default and the value that the script got."""
    found = []
    for action in parser._actions:
        if action.option_strings and action.dest not in ("help", "version") and action.dest != "==SUPPRESS==":
            described = _describe(action, getattr(parsed, action.dest, None))
            if described is not None:
                found.append(described)
    return found


def _describe(action: Any, value: Any) -> Optional[dict[str, Any]]:
    names = list(action.option_strings)
    kind, off = "value", [name for name in names if name.startswith("--no-")]
    if type(action).__name__ == "BooleanOptionalAction" and off:
        kind, names = "pair", [name for name in names if name not in off]
    elif action.nargs == 0:
        if action.const not in (True, False):
            return None
        kind = "switch"
    elif action.nargs == "?" and action.const is True:
        kind = "maybe"
    elif action.nargs not in (None, "?", 1):
        return None
    choices = [str(choice) for choice in action.choices] if isinstance(action.choices, (list, tuple)) else []
    is_unknown = action.default is None or (kind == "switch" and action.const is False)
    return {
        "names": names,
        "kind": kind,
        "off": off[0] if off else None,
        "choices": choices,
        "default": None if is_unknown else str(action.default),
        "is_required": bool(action.required),
        "value": value if isinstance(value, (int, str)) and not isinstance(value, bool) else None,
    }


FIRST = FirstRun()
