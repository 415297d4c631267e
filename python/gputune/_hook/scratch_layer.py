"""A layer over the user's files: a probe writes to a scratch folder, and files that it removes only look removed.

Each changed path has an entry. An entry holds the file's place (`None` if removed) and, for a link, its target. The
file is in the scratch folder, or is the user's file after a rename. Paths without an entry are unchanged on disk. All
processes of the probe share the entries through a journal.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from typing import Any, Optional, Union

from gputune._hook.guarded_places import Places, is_system
from gputune._hook.layer_journal import LayerJournal

#: Most links to follow in a path. More links count as a loop (path_resolution(7)).
_MOST_LINKS = 40
_COPY_BYTES = 1 << 20


class Real:
    """The original functions, before `file_calls` replaces them."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    read = staticmethod(os.read)
    write = staticmethod(os.write)
    stat = staticmethod(os.stat)
    lstat = staticmethod(os.lstat)
    readlink = staticmethod(os.readlink)
    listdir = staticmethod(os.listdir)
    mkdir = staticmethod(os.mkdir)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)
    rename = staticmethod(os.rename)
    link = staticmethod(os.link)
    symlink = staticmethod(os.symlink)
    chdir = staticmethod(os.chdir)
    getcwd = staticmethod(os.getcwd)
    statvfs = staticmethod(os.statvfs)
    utime = staticmethod(os.utime)


Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Entry:
    """The state of a changed path."""

    __slots__ = ("file", "target")

    def __init__(self, file: Optional[str], target: Optional[str] = None) -> None:
        self.file = file  # `None` if the probe has removed the path
        self.target = target  # of a symbolic link


def failure(number: int, path: Any, other: Any = None) -> OSError:
    """The error that the system would raise."""
    if other is not None:
        return OSError(number, os.strerror(number), path, None, other)
    return OSError(number, os.strerror(number), path)


class ScratchLayer:
    """The layer in this process.

    A key is the absolute path of a file as the script sees it, with the links in the path of its folder resolved.
    `ours` is a folder of the probe, where writes need no layer.
    """

    def __init__(self, scratch: str, ours: str) -> None:
        scratch = os.path.realpath(scratch)
        self.scratch = scratch
        self.files = os.path.join(scratch, "files")
        os.makedirs(self.files, exist_ok=True)
        self.places = Places(scratch, ours)
        self._journal = LayerJournal(scratch)
        self.length = self._journal.length
        self.known = [0]
        """Bytes of the journal that this process knows; -1 if each path must be resolved.

        It is a list of one number, so that the fast path of `file_calls` can share it."""
        self.entries: dict[str, Entry] = {}
        self.below: dict[str, dict[str, None]] = {}
        """Names with an entry, by their folder."""
        self.names = {"", ".", ".."}
        """Names of all paths that ever had an entry, and the special names `.`, `..` and empty."""
        self.must_resolve = False
        """True if each path must be resolved: a link was made, or the working folder is in the layer."""
        self._folders: dict[str, str] = {}  # results of `_real_folder`
        self.lock = threading.RLock()
        self._cwd: Optional[str] = None  # the working folder as the script sees it, if it is in the layer
        try:
            cwd = Real.getcwd()
        except FileNotFoundError:  # the working folder was removed
            cwd = "/"
        if cwd.startswith(self.files + "/"):
            self._shift(cwd[len(self.files) :])
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self.lock = threading.RLock()  # another thread of the parent may hold the old lock

    # Locating paths.

    def locate(self, path: Path, follow: bool = True, folder_fd: Optional[int] = None) -> Optional[str]:
        """The key of a path; `None` for paths in /dev, /proc and /sys (except /dev/shm).

        `follow` is true if a link at the end of the path is followed. A relative path begins at `folder_fd`, if given.
        """
        text = os.fsdecode(path)
        if not text:
            raise failure(errno.ENOENT, path)
        if not text.startswith("/"):
            text = os.path.join(self.getcwd() if folder_fd is None else self.folder_of(folder_fd), text)
        self.refresh()
        absolute = self._normal(text)
        for _ in range(_MOST_LINKS):
            if is_system(absolute):
                return None
            folder, name = os.path.split(absolute)
            key = os.path.join(self._real_folder(folder), name)
            target = self.target_of(key) if follow else None
            if target is None:
                return key
            absolute = self._normal(os.path.join(os.path.dirname(key), target))
        raise failure(errno.ELOOP, path)

    def _normal(self, path: str, depth: int = 0) -> str:
        """An absolute path without `.` and `..`. As in the kernel, `..` after a link is the parent of the link's target."""
        if "/.." not in path:
            return "/" + os.path.normpath(path).lstrip("/")
        normal = "/"
        for name in path.split("/"):
            if name == "..":
                normal = os.path.dirname(self._real_folder(normal, depth))
            elif name not in ("", "."):
                normal = os.path.join(normal, name)
        return normal

    def _real_folder(self, folder: str, depth: int = 0) -> str:
        """A folder with all links in its path resolved."""
        if folder == "/":
            return folder
        known = self._folders.get(folder)
        if known is not None:
            return known
        if depth > 4 * _MOST_LINKS:
            raise failure(errno.ELOOP, folder)
        parent, name = os.path.split(folder)
        key = os.path.join(self._real_folder(parent, depth + 1), name)
        target = self.target_of(key)
        if target is not None:
            key = self._real_folder(self._normal(os.path.join(os.path.dirname(key), target), depth + 1), depth + 1)
        if not is_system(folder):  # `/proc/self/cwd` changes
            self._folders[folder] = key
        return key

    def target_of(self, key: str) -> Optional[str]:
        """The target of a symbolic link; `None` for other paths."""
        entry = self.entries.get(key)
        if entry is not None:
            return entry.target
        try:
            return Real.readlink(key)
        except OSError:
            return None

    def file_of(self, key: str) -> Optional[str]:
        """The path on disk for `key`, even if no file exists; `None` if the probe has removed it."""
        entry = self.entries.get(key)
        return key if entry is None else entry.file

    def status_of(self, key: str) -> Optional[os.stat_result]:
        """The status of `key`, links not followed; `None` if it does not exist."""
        file = self.file_of(key)
        if file is None:
            return None
        try:
            return Real.lstat(file)
        except OSError:
            return None

    def is_folder(self, key: str) -> bool:
        found = self.status_of(key)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def is_in_layer(self, file: Optional[str]) -> bool:
        return file is not None and file.startswith(self.files + "/")

    def names_in(self, key: str) -> list[str]:
        """The names in a folder, as the probe sees it."""
        changed = self.below.get(key, {})
        try:
            names = dict.fromkeys(Real.listdir(key))
        except OSError:
            names = {}
        names.update(changed)
        return [name for name in names if name not in changed or self.file_of(os.path.join(key, name)) is not None]

    def folder_of(self, descriptor: int) -> str:
        """The path of an open folder."""
        path = Real.readlink(f"/proc/self/fd/{descriptor}")
        return path[len(self.files) :] or "/" if self.is_in_layer(path) else path

    # Reading.

    def reading(self, path: Any, follow: bool = True, folder_fd: Optional[int] = None) -> Any:
        """The path to open for reading: the file of a changed path, else `path` itself.

        An unchanged path is replaced by its key if paths must be resolved, or if it is relative to `folder_fd`.
        """
        if self.length[0] != self._journal.read_to:
            self.refresh()
        if not self.entries and not self.must_resolve:
            return path
        if isinstance(path, int):
            return path
        text = os.fspath(path)
        if not self.must_resolve and type(text) is str:
            name = text.rpartition("/")[2]
            if name not in self.names:
                return path
        key = self.locate(path, follow, folder_fd)
        if key is None:
            return path
        entry = self.entries.get(key)
        if entry is None:
            return key if self.must_resolve or folder_fd is not None else path
        if entry.file is None:
            raise failure(errno.ENOENT, path)
        if text[-1:] in ("/", b"/"):
            return entry.file + "/"
        return entry.file

    # Writing.

    def guarded(self, path: Any, follow: bool = True, folder_fd: Optional[int] = None) -> Optional[str]:
        """The key of `path` if it is guarded (see `guarded_places.py`), else `None`."""
        if isinstance(path, int):
            return None
        key = self.locate(path, follow, folder_fd)
        return key if key is not None and self.places.is_guarded(key) else None

    def writing(self, path: Any, keeps: bool, follow: bool = True, folder_fd: Optional[int] = None) -> Any:
        """The path to open for writing. With `keeps` the old content matters, so a user's file is copied first."""
        key = self.guarded(path, follow, folder_fd)
        if key is None:
            return self.reading(path, follow, folder_fd) if not isinstance(path, int) else path
        with self.lock:
            file = self.file_of(key)
            found = self.status_of(key)
            if found is not None and not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
                return file  # a device, a pipe, a folder: unchanged
            if self.is_in_layer(file):
                return file
            target = self.place_for(key, path)
            if keeps and found is not None and file is not None:
                copy_file(file, target, path)
            self.record(key, Entry(target))
            return target

    def place_for(self, key: str, path: Any) -> str:
        """The path for a new file of the layer; makes its folder."""
        folder = os.path.dirname(key)
        if not self.is_folder(folder):
            raise failure(errno.ENOTDIR if self.status_of(folder) is not None else errno.ENOENT, path)
        target = self.files + key
        self._make_folders(os.path.dirname(target))
        return target

    def folder(self, path: Any) -> Any:
        """The folder to give to a library that writes new files below `path`; makes the folder."""
        key = self.guarded(path)
        if key is None:
            return self.reading(path)
        with self.lock:
            self._make_logical_folders(key)
            self._make_folders(self.files + key)
        return self.files + key

    def _make_logical_folders(self, key: str) -> None:
        """Makes a folder and its missing parents, as the script sees them, in the layer."""
        if not self.is_folder(key):
            self._make_logical_folders(os.path.dirname(key))
            self._make_folders(self.files + key)
            self.record(key, Entry(self.files + key))

    def _make_folders(self, folder: str) -> None:
        try:
            Real.mkdir(folder, 0o777)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self._make_folders(os.path.dirname(folder))
            self._make_folders(folder)

    # Entries.

    def refresh(self) -> None:
        """Reads the changes of other processes."""
        if self.length[0] != self._journal.read_to:
            with self.lock:
                for record in self._journal.news():
                    self._apply(*record)
                self._know()

    def record(self, key: str, entry: Optional[Entry]) -> None:
        """Records the state of a path. `entry` is `None` if the path is unchanged again."""
        line = [key, entry is not None, entry and entry.file, entry and entry.target]
        with self.lock:
            for record in self._journal.append(line):
                self._apply(*record)
            self._know()

    def _know(self) -> None:
        """Updates `known`."""
        self.known[0] = -1 if self.must_resolve else self._journal.read_to

    def _apply(self, key: str, is_changed: bool, file: Optional[str], target: Optional[str]) -> None:
        folder, name = os.path.split(key)
        before = self.entries.get(key)
        if is_changed:
            self.entries[key] = Entry(file, target)
            self.below.setdefault(folder, {})[name] = None
            self.names.add(name)
        else:
            self.entries.pop(key, None)
            self.below.get(folder, {}).pop(name, None)
        if target is not None:
            self.must_resolve = True
        if target is not None or file is None or (before is not None and before.target is not None):
            self._folders.clear()

    # The working folder.

    def getcwd(self) -> str:
        return self._cwd if self._cwd is not None else Real.getcwd()

    def chdir(self, path: Any) -> None:
        key = None if isinstance(path, int) else self.locate(path)
        file = None if key is None else self.file_of(key)
        if key is None:
            Real.chdir(path)
        elif file is None:
            raise failure(errno.ENOENT, path)
        else:
            Real.chdir(file)
        self._cwd = None
        if key is not None and self.is_in_layer(file):
            self._shift(key)

    def _shift(self, cwd: str) -> None:
        """Notes that the working folder is in the layer."""
        self._cwd = cwd
        self.must_resolve = True
        self._know()


def copy_file(source: str, target: str, path: Any) -> None:
    """Copies a file with its mode and times."""
    found = Real.stat(source)
    free = Real.statvfs(os.path.dirname(target))
    if found.st_size > free.f_bavail * free.f_frsize:
        message = (
            f"no space for the probe's copy of this file ({found.st_size} bytes); open it read-only, or set "
            '`[step] writes = "allow"`'
        )
        raise OSError(errno.ENOSPC, message, path)
    reader = Real.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        writer = Real.open(target, flags, stat.S_IMODE(found.st_mode) | stat.S_IWUSR)
        try:
            _copy_content(reader, writer)
        finally:
            Real.close(writer)
    finally:
        Real.close(reader)
    Real.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _copy_content(reader: int, writer: int) -> None:
    try:
        while os.sendfile(writer, reader, None, _COPY_BYTES * 64):  # type: ignore[arg-type]
            pass
        return
    except OSError:
        pass  # a file system without `sendfile`
    while True:
        part = Real.read(reader, _COPY_BYTES)
        if not part:
            return
        while part:
            part = part[Real.write(writer, part) :]
