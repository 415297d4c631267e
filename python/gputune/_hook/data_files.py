"""Finds the files that a dataset reads: files opened for a sample, and files held open or mapped.

Python reports each file that it opens (PEP 578), but C libraries do not. /proc lists the files that C libraries hold
open or mapped, such as HDF5 and Arrow files. Files that a C library opens and closes within a sample stay unseen.
"""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from typing import Any, Callable, Optional

#: Most files whose names this process records.
_MOST = 20_000
#: Numbers of batches after which the hook lists the files held open.
_LOOKS = (1, 8, 64)
#: Number of waiting names at which the hook writes them to the list.
_MOST_WAITING = 64

_OPENED, _HELD = "o", "h"

_KINDS = {
    "images": "jpg jpeg png bmp webp gif tif tiff ppm pgm jp2 dcm wav flac mp3 ogg opus m4a mp4 avi mkv webm",
    "hdf5": "h5 hdf5 hdf he5 nc nc4",
    "tfrecord": "tfrecord tfrecords tfrec",
    "webdataset": "tar tgz",
    "parquet": "parquet parq",
    "arrow": "arrow feather ipc",
    "npy": "npy npz memmap mmap",
    "text": "txt csv tsv json jsonl ndjson xml",
}
_KIND_OF = {suffix: kind for kind, suffixes in _KINDS.items() for suffix in suffixes.split()}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
#: Fewest slashes in the path of a folder that counts as the folder of one dataset, such as `/data/imagenet`.
_LEAST_DEPTH = 2
#: Suffixes of raw numbers, which count as `npy` if the file is mapped.
_RAW = ("bin", "dat", "raw")

_prefixes = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
#: Folders of programs, libraries and the system; their files are no data.
_SYSTEM_FOLDERS = tuple(
    path.rstrip("/") + "/"
    for path in (*_prefixes, "/usr/lib", "/usr/share", "/usr/bin", "/usr/local/lib", "/lib", "/proc", "/sys", "/dev", "/etc")
    if path not in ("", "/", "/usr")
)
#: Suffixes of programs and libraries; such files are no data in any folder.
_CODE = (".so", ".py", ".pyc", ".pyi", ".pth", ".egg", ".whl", ".cubin", ".ptx")


def kind_of(path: str, is_mapped: bool = False) -> str:
    """The kind of a file by its name."""
    name = os.path.basename(path).lower()
    for ending in _COMPRESSED:
        if name.endswith(ending):
            name = name[: -len(ending)]
    if ".tfrecord" in name:
        return "tfrecord"
    suffix = name.rpartition(".")[2]
    if suffix in _RAW and is_mapped:
        return "npy"
    return _KIND_OF.get(suffix, "other")


#: The function that gets the path and the flags of each opened file. An audit hook cannot be removed, so there is one
#: audit hook, which calls this function.
_listener: Optional[Callable[[str, int], None]] = None
_is_listening = False


class DataFiles:
    """The files that the datasets of this process read. Their names are written to a list in the probe's folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = os.path.join(folder, f"files-{os.getpid()}.txt")
        self._known: set[tuple[str, str]] = set()
        self._waiting: list[str] = []
        self._opened = 0
        self._bytes = 0
        self._sized = 0
        self._batches = 0
        self._is_inside: Callable[[], bool] = lambda: False

    def listen(self, is_inside: Callable[[], bool]) -> None:
        """Notes each file that is opened while `is_inside()` is true."""
        global _listener, _is_listening
        self._is_inside = is_inside
        _listener = self._hear
        if not _is_listening:
            _is_listening = True
            sys.addaudithook(_audit)

    def _hear(self, path: str, flags: int) -> None:
        if not self._is_inside() or flags & os.O_ACCMODE == os.O_WRONLY or _is_system_file(path):
            return
        self._opened += 1
        if (_OPENED, path) in self._known:
            return
        size = self._note(_OPENED, path)
        if size is not None:
            self._bytes += size
            self._sized += 1

    def _note(self, how: str, path: str) -> Optional[int]:
        """Records a file. Returns its size; `None` if `path` is no regular file, or if too many files are known."""
        if len(self._known) >= _MOST:
            return None
        self._known.add((how, path))
        try:
            found = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        if "\n" not in path:
            self._waiting.append(f"{how} {found.st_size} {os.path.abspath(path)}\n")
        return found.st_size

    def between_batches(self) -> tuple[int, int, int]:
        """Counts since the last call: opened files, bytes of the new files among them, and the number of new files."""
        self._batches += 1
        if self._batches in _LOOKS:
            self.look()
        if len(self._waiting) >= _MOST_WAITING or self._batches in _LOOKS:
            self.write()
        opened = (self._opened, self._bytes, self._sized)
        self._opened = self._bytes = self._sized = 0
        return opened

    def look(self) -> None:
        """Notes the files held open now."""
        for path in held_files():
            if (_OPENED, path) not in self._known and (_HELD, path) not in self._known:
                self._note(_HELD, path)

    def write(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            with open(self._path, "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write("".join(waiting))
        except OSError:  # such as a full disk: these names are lost
            pass


def _audit(event: str, args: Any) -> None:
    if event == "open" and _listener is not None:
        try:
            path, _, flags = args
            if not isinstance(path, int):
                _listener(os.fsdecode(path), flags if isinstance(flags, int) else 0)
        except Exception:  # an error here would make the script's own `open` fail
            pass


def _is_system_file(path: str) -> bool:
    """True if a file belongs to programs, libraries or the system."""
    return path.startswith(_SYSTEM_FOLDERS) or path.endswith(_CODE) or ".so." in path


def held_files() -> list[str]:
    """Regular files that this process has mapped or open for reading, except programs and libraries."""
    found: dict[str, None] = {}
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                path = os.readlink(f"/proc/self/fd/{name}")
                if path.startswith("/") and not _is_system_file(path) and _reads(name):
                    found[path] = None
            except (OSError, ValueError):
                continue
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if path and not path.endswith(" (deleted)") and not _is_system_file("/" + path):
                    found["/" + path] = None
    except OSError:
        pass
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [path for path in found if not path.startswith(ours + os.sep) and os.path.isfile(path)]


def _reads(descriptor: str) -> bool:
    """True if a descriptor is open for reading. A file that is only written, such as a log, is no data."""
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as info:
        for line in info:
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_WRONLY
    return False


class FilesFound:
    """Reads the file lists that all processes of the probe write. Each read continues at the end of the last read."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._offsets: dict[str, int] = {}
        self.opened: dict[str, int] = {}  # size in bytes, by path
        self.held: dict[str, int] = {}  # likewise, of files held open or mapped

    def read(self) -> None:
        for name in os.listdir(self._folder):
            if name.startswith("files-") and name.endswith(".txt"):
                self._read(os.path.join(self._folder, name))

    def _read(self, path: str) -> None:
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                file.seek(self._offsets.get(path, 0))
                while True:
                    line = file.readline()
                    if not line.endswith("\n"):
                        break
                    self._offsets[path] = file.tell()
                    how, size, name = line.rstrip("\n").split(" ", 2)
                    (self.opened if how == _OPENED else self.held)[name] = int(size)
        except (OSError, ValueError):
            pass

    def verdict(self) -> tuple[str, Optional[str], Optional[float]]:
        """The most frequent kind of the files, and the folder and mean size in bytes of the files of that kind.

        Opened files count once each. Without opened files, held files count by their size.
        """
        files = self.opened or self.held
        weights: dict[str, float] = {}
        for path, size in files.items():
            kind = kind_of(path, files is self.held)
            weights[kind] = weights.get(kind, 0.0) + (1 if files is self.opened else size)
        if files is self.held:  # unrelated files that happen to be open
            weights.pop("other", None)
        if not weights:
            return "none", None, None
        kind = max(weights, key=lambda kind: weights[kind])
        of_kind = {path: size for path, size in files.items() if kind_of(path, files is self.held) == kind}
        return kind, _folder_of(list(of_kind)), sum(of_kind.values()) / len(of_kind)


def _folder_of(paths: list[str]) -> str:
    """The common folder of all files; the most frequent folder if the common folder is as high as `/data`."""
    common = os.path.commonpath([os.path.dirname(path) for path in paths])
    if common.count("/") >= _LEAST_DEPTH:
        return common
    folders: dict[str, int] = {}
    for path in paths:
        folder = os.path.dirname(path)
        folders[folder] = folders.get(folder, 0) + 1
    return max(folders, key=lambda folder: folders[folder])
