"""Lists the paths where a guarded probe may really write: temporary folders, caches and devices.

All other paths are the user's. So is each entry that a temporary folder had before the probe began, such as the
`--output_dir /tmp/run` of an earlier run.
"""

from __future__ import annotations

import json
import os
from typing import Any

# The original functions, before `file_calls` replaces them.
_open, _close, _write, _link, _unlink, _listdir = os.open, os.close, os.write, os.link, os.unlink, os.listdir

_RUNTIME = ("/dev", "/proc", "/sys", "/run", "/var/run", "/var/lock")
_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp", "/dev/shm")
_TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")

#: Folders of compiled kernels and downloads: programs other than Python also write there, and no user's file is there.
_CACHES = (".cache", ".triton", ".nv", ".config/matplotlib", ".matplotlib", ".keras")
_CACHE_VARIABLES = (
    "XDG_CACHE_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_HOME",
    "TRITON_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TORCH_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "TRANSFORMERS_CACHE",
    "CUDA_CACHE_PATH",
    "NUMBA_CACHE_DIR",
    "JAX_COMPILATION_CACHE_DIR",
    "MPLCONFIGDIR",
    "KERAS_HOME",
    "PYTHONPYCACHEPREFIX",
)
#: Prefixes of the names of free entries in a temporary folder: these entries outlive a program, and programs other than
#: Python write them.
_SHARED_ENTRIES = tuple(". torchinductor_ torch_ triton nvidia- cuda ray pymp- psm_ pym- sem. nccl-".split())


def is_system(path: str) -> bool:
    """True if a path names a device, a pipe or a kernel value instead of a file."""
    return path.startswith(("/dev/", "/proc/", "/sys/")) and not path.startswith("/dev/shm/")


def _real(path: str) -> str:
    return os.path.realpath(path)


def _temporary_folders() -> set[str]:
    named = [os.environ[name] for name in _TEMPORARY_VARIABLES if os.environ.get(name)]
    return {_real(path) for path in (*_TEMPORARY, *named) if os.path.isdir(path)}


def _caches() -> set[str]:
    home = os.path.expanduser("~")
    below_home = [os.path.join(home, name) for name in _CACHES] if os.path.isabs(home) else []
    named = [os.path.abspath(os.environ[name]) for name in _CACHE_VARIABLES if os.environ.get(name)]
    return {_real(path) for path in (*below_home, *named)}


def look() -> dict[str, Any]:
    """The folders that decide where this process may write: `True` if guarded, `False` if free to write."""
    folders: dict[str, bool] = {"/": True}
    for temporary in _temporary_folders():
        folders[temporary] = False
    for temporary in _temporary_folders():
        try:
            names = _listdir(temporary)
        except OSError:
            continue
        for name in names:
            if not name.startswith(_SHARED_ENTRIES):
                folders.setdefault(os.path.join(temporary, name), True)
    try:
        cwd = _real(os.getcwd())
    except FileNotFoundError:  # the working folder was removed
        cwd = "/"
    if folders.get(cwd) is not False:
        folders[cwd] = True
    for free in (*_RUNTIME, *_caches()):
        if free not in ("/", cwd):
            folders[free] = False
    return folders


class Places:
    """Decides which paths are guarded: the nearest listed folder above the path counts."""

    def __init__(self, scratch: str, ours: str) -> None:
        self._guarded: dict[str, bool] = dict(_agreed(os.path.join(scratch, "places.json")))
        for path in (scratch, ours):  # folders of this probe, which the list may count as the user's
            self._guarded[_real(path)] = False

    def is_guarded(self, path: str) -> bool:
        """True if the path may belong to the user. `path` is absolute and its folder has no links."""
        known = self._guarded.get(path)
        if known is not None:
            return known
        folder = os.path.dirname(path)
        answer = self._guarded.get(folder)
        if answer is None:
            answer = self._guarded[folder] = self.is_guarded(folder)
        return answer


def _agreed(path: str) -> dict[str, bool]:
    """The list that the probe's first process made: later processes cannot tell its temporary files from the user's."""
    try:
        return _load(path)
    except FileNotFoundError:
        pass
    own = f"{path}.{os.getpid()}"
    file = _open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        text = json.dumps(look()).encode()
        while text:
            text = text[_write(file, text) :]
    finally:
        _close(file)
    try:
        _link(own, path)  # atomic; only the first process succeeds
    except FileExistsError:
        pass
    _unlink(own)
    return _load(path)


def _load(path: str) -> dict[str, bool]:
    with open(path, encoding="utf-8") as file:
        return dict(json.load(file))
