"""Replaces Python's file functions, so that their changes go to a scratch layer."""

from __future__ import annotations

import builtins
import errno
import functools
import importlib
import io
import os
import sys
from typing import Any, Callable

from gputune._hook import importing
from gputune._hook.layer_changes import LayerChanges
from gputune._hook.layer_listing import FolderEntries
from gputune._hook.scratch_layer import ScratchLayer, failure

Function = Callable[..., Any]

#: Modes of `open` that change nothing.
READING_MODES = frozenset(("r", "rb", "br", "rt", "tr"))
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Functions of `os` that read a path and follow links unless told otherwise.
_READERS = ("stat", "access", "statvfs", "pathconf", "getxattr", "listxattr")
#: Functions of `os` that read a link itself.
_LINK_READERS = ("lstat", "readlink")
#: Functions that change a file but not its content. Their calls have no effect on the user's files.
_TOUCHERS = ("chmod", "lchmod", "chown", "lchown", "utime", "setxattr", "removexattr", "chflags", "lchflags")
#: Modules that keep the original functions: Python's imports, and the modules of the layer.
_UNTOUCHED = ("posix", "_io", "_frozen_importlib", "_frozen_importlib_external", "gputune._hook.scratch_layer")
_UNTOUCHED += ("gputune._hook.layer_journal", "gputune._hook.guarded_places")


class Replacement(staticmethod):  # type: ignore[type-arg]
    """Replaces a C function, and behaves like it: as a class attribute it gets no `self`, and it pickles by name."""

    def __init__(self, function: Function, original: Function, module: str) -> None:
        functools.update_wrapper(function, original)
        super().__init__(function)  # copies name and docstring since Python 3.10
        if sys.version_info < (3, 10):
            functools.update_wrapper(self, original)
        self._place = (module, original.__name__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _by_name, self._place

    if sys.version_info < (3, 10):

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.__func__(*args, **kwargs)


def _by_name(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


class FileCalls:
    """Installs the replacements."""

    def __init__(self, layer: ScratchLayer) -> None:
        self._layer = layer
        self._changes = LayerChanges(layer)
        self._replaced: dict[int, tuple[Function, Function]] = {}

    def install(self) -> None:
        opened = io.open
        io.open = builtins.open = self._replacement(opened, self._open(opened), "io")  # type: ignore[assignment]
        self._replace("open", self._os_open)
        for name in _READERS:
            self._replace(name, self._reader)
        for name in _LINK_READERS:
            self._replace(name, lambda original: self._reader(original, follows=False))
        for name in _TOUCHERS:
            self._replace(name, self._toucher)
        for name, make in (
            ("listdir", self._listdir),
            ("scandir", self._scandir),
            ("unlink", self._unlink),
            ("remove", self._unlink),
            ("rmdir", self._rmdir),
            ("mkdir", self._mkdir),
            ("rename", self._rename),
            ("replace", self._rename),
            ("symlink", self._symlink),
            ("link", self._link),
            ("truncate", self._truncate),
            ("mkfifo", self._maker),
            ("mknod", self._maker),
            ("chdir", lambda original: lambda path: self._layer.chdir(path)),
            ("getcwd", lambda original: lambda: self._layer.getcwd()),
            ("getcwdb", lambda original: lambda: os.fsencode(self._layer.getcwd())),
        ):
            self._replace(name, make)
        self._replace_copies()
        importing.after("shutil", _use_paths)

    def _replacement(self, original: Function, function: Function, module: str) -> Function:
        function = Replacement(function, original, module)
        self._replaced[id(original)] = (original, function)
        for kind in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if original in kind:
                kind.add(function)
        return function

    def _replace(self, name: str, make: Callable[[Function], Function]) -> None:
        original = getattr(os, name, None)
        if original is not None:
            setattr(os, name, self._replacement(original, make(original), "os"))

    def _replace_copies(self) -> None:
        """Replaces the functions that already loaded modules have imported by name."""
        for name, module in list(sys.modules.items()):
            if name in _UNTOUCHED or not hasattr(module, "__dict__"):
                continue
            for owner in (module, getattr(module, "_NormalAccessor", None) if name == "pathlib" else None):
                self._replace_in(owner)

    def _replace_in(self, owner: Any) -> None:
        for attribute, value in list(vars(owner).items()) if owner is not None else []:
            is_static = isinstance(value, staticmethod)
            pair = self._replaced.get(id(value.__func__ if is_static else value))
            if pair is None:
                continue
            try:
                setattr(owner, attribute, pair[1])
            except (AttributeError, TypeError):
                pass

    # Opening.

    def _open(self, original: Function) -> Function:
        layer = self._layer
        reading, writing = layer.reading, layer.writing
        length, known, names, modes = layer.length, layer.known, layer.names, READING_MODES

        def open(  # same signature as `io.open`, as forwarding `**kwargs` would be slow
            file: Any,
            mode: Any = "r",
            buffering: Any = -1,
            encoding: Any = None,
            errors: Any = None,
            newline: Any = None,
            closefd: Any = True,
            opener: Any = None,
        ) -> Any:
            if isinstance(mode, str) and mode in modes:
                # Fast path for most data files: the probe has changed no path, or this process has read the whole
                # journal (`known`) and no changed path has this name.
                size = length[0]
                if not size or (size == known[0] and type(file) is str and file.rpartition("/")[2] not in names):
                    return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
                found = reading(file) if isinstance(file, (str, bytes, os.PathLike)) else file
            elif isinstance(mode, str) and isinstance(file, (str, bytes, os.PathLike)):
                if "x" in mode:
                    self._refuse_existing(file)
                found = writing(file, keeps="w" not in mode)
            else:
                found = file
            return _named(file, found, original, found, mode, buffering, encoding, errors, newline, closefd, opener)

        return open

    def _refuse_existing(self, path: Any, folder_fd: Any = None) -> None:
        key = self._layer.guarded(path, False, folder_fd)
        if key is not None and self._layer.status_of(key) is not None:
            raise failure(errno.EEXIST, path)

    def _os_open(self, original: Function) -> Function:
        layer = self._layer

        def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
            if dir_fd is not None and flags & _WRITING_FLAGS:
                path, dir_fd = os.path.join(layer.folder_of(dir_fd), os.fsdecode(path)), None
            if not flags & _WRITING_FLAGS:
                found = layer.reading(path, not flags & os.O_NOFOLLOW, dir_fd)
            elif flags & os.O_TMPFILE == os.O_TMPFILE:
                found = self._unnamed(path, dir_fd)
            elif not isinstance(path, (str, bytes, os.PathLike)):
                found = path
            else:
                if flags & os.O_CREAT and flags & os.O_EXCL:
                    self._refuse_existing(path, dir_fd)
                found = layer.writing(path, not flags & os.O_TRUNC, not flags & os.O_NOFOLLOW, dir_fd)
            if found is path:
                return int(original(path, flags, mode, dir_fd=dir_fd))
            return int(_named(path, found, original, found, flags, mode))

        return open

    def _unnamed(self, path: Any, folder_fd: Any) -> Any:
        """The folder for a file without a name (`O_TMPFILE`)."""
        return path if self._layer.guarded(path, True, folder_fd) is None else self._layer.files

    # Reading.

    def _reader(self, original: Function, follows: bool = True) -> Function:
        reading = self._layer.reading

        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            follow = kwargs.get("follow_symlinks", follows)
            try:
                found = reading(path, follow, kwargs.get("dir_fd"))
            except FileNotFoundError:
                if original.__name__ == "access":
                    return False
                raise
            except TypeError:  # no path: the original function raises the error
                found = path
            if found is path:
                return original(path, *args, **kwargs)
            kwargs.pop("dir_fd", None)
            found = os.fsencode(found) if isinstance(path, bytes) else found
            return _named(path, found, original, found, *args, **kwargs)

        return read

    def _merged(self, path: Any) -> Any:
        """The key (see `ScratchLayer`) of a folder that has entries in the layer, else `None`."""
        layer = self._layer
        layer.reading(path)  # raises if the probe has removed the folder
        if isinstance(path, int) or not (layer.entries or layer.must_resolve):
            return None
        key = layer.locate(path)
        has_entries = key is not None and (layer.below.get(key) or key in layer.entries)
        return key if key is not None and has_entries and layer.is_folder(key) else None

    def _listdir(self, original: Function) -> Function:
        def listdir(path: Any = None) -> Any:
            folder = "." if path is None else path
            key = self._merged(folder)
            if key is None:
                found = self._layer.reading(folder)
                return original(path) if found is folder else _named(folder, found, original, found)
            names = self._layer.names_in(key)
            return [os.fsencode(name) for name in names] if isinstance(os.fspath(folder), bytes) else names

        return listdir

    def _scandir(self, original: Function) -> Function:
        def scandir(path: Any = None) -> Any:
            folder = "." if path is None else path
            key = self._merged(folder)
            if key is None:
                found = self._layer.reading(folder)
                return original(path) if found is folder else _named(folder, found, original, found)
            return FolderEntries(os.fspath(folder), self._layer.names_in(key))

        return scandir

    # Changing.

    def _toucher(self, original: Function) -> Function:
        layer = self._layer

        def touch(path: Any, *args: Any, **kwargs: Any) -> Any:
            follow = kwargs.get("follow_symlinks", not original.__name__.startswith("l"))
            key = layer.guarded(path, follow, kwargs.get("dir_fd"))
            found = layer.reading(path, follow, kwargs.get("dir_fd"))
            if found is not path:
                kwargs.pop("dir_fd", None)
            if key is None:
                return original(found, *args, **kwargs)
            if layer.status_of(key) is None or layer.is_in_layer(layer.file_of(key)):
                return _named(path, found, original, found, *args, **kwargs)
            return None

        return touch

    def _guarded_or(self, original: Function, change: Callable[..., None], makes: bool = False) -> Function:
        """Calls `change` for a guarded path, else `original`; neither follows a link at the end of the path."""
        layer = self._layer

        def call(path: Any, *args: Any, **kwargs: Any) -> None:
            key = layer.guarded(path, False, kwargs.get("dir_fd"))
            if key is None:
                found = layer.reading(path, False, kwargs.get("dir_fd"))
                if found is not path:
                    kwargs.pop("dir_fd", None)
                original(found, *args, **kwargs)
                return
            kwargs.pop("dir_fd", None)
            with layer.lock:
                change(key, path, *args, **kwargs)

        return call

    def _unlink(self, original: Function) -> Function:
        return self._guarded_or(original, self._changes.unlink)

    def _rmdir(self, original: Function) -> Function:
        return self._guarded_or(original, self._changes.rmdir)

    def _mkdir(self, original: Function) -> Function:
        def mkdir(key: str, path: Any, mode: int = 0o777) -> None:
            self._changes.mkdir(key, path, mode)

        return self._guarded_or(original, mkdir)

    def _maker(self, original: Function) -> Function:
        def make(key: str, path: Any, *args: Any, **kwargs: Any) -> None:
            self._refuse_existing(path)
            found = self._layer.writing(path, keeps=False)
            original(found, *args, **kwargs)

        return self._guarded_or(original, make)

    def _rename(self, original: Function) -> Function:
        layer = self._layer

        def rename(src: Any, dst: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
            source, target = layer.guarded(src, False, src_dir_fd), layer.guarded(dst, False, dst_dir_fd)
            if source is None and target is None:
                if layer.must_resolve:
                    src, dst = layer.reading(src, False, src_dir_fd), layer.reading(dst, False, dst_dir_fd)
                    original(src, dst)
                else:
                    original(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
                return
            self._changes.rename(source, src, target, dst)

        return rename

    def _symlink(self, original: Function) -> Function:
        layer = self._layer

        def symlink(src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: Any = None) -> None:
            key = layer.guarded(dst, False, dir_fd)
            if key is None:
                original(src, dst, target_is_directory, dir_fd=dir_fd)
                return
            with layer.lock:
                self._changes.symlink(src, key, dst)

        return symlink

    def _link(self, original: Function) -> Function:
        layer = self._layer

        def link(
            src: Any, dst: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None, follow_symlinks: bool = True
        ) -> None:
            source, key = layer.locate(src, follow_symlinks, src_dir_fd), layer.guarded(dst, False, dst_dir_fd)
            if source is None or (key is None and not layer.places.is_guarded(source)):
                paths = layer.reading(src, False, src_dir_fd), layer.reading(dst, False, dst_dir_fd)
                original(*paths, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)
                return
            if key is None:  # a link in a temporary folder would allow writes to the user's file
                import shutil

                shutil.copy2(layer.reading(source), layer.locate(dst, False, dst_dir_fd) or dst)
                return
            with layer.lock:
                self._changes.link(source, key, dst)

        return link

    def _truncate(self, original: Function) -> Function:
        def truncate(path: Any, length: int) -> None:
            if isinstance(path, int):
                original(path, length)
                return
            if self._layer.guarded(path) is not None:
                os.stat(path)  # raises if the file is missing
            found = self._layer.writing(path, keeps=True)
            _named(path, found, original, found, length)

        return truncate


def _use_paths(shutil: Any) -> None:
    """Makes `shutil.rmtree` use paths: its calls by folder descriptors would bypass the layer."""
    shutil._use_fd_functions = False


def _named(path: Any, found: Any, function: Function, *args: Any, **kwargs: Any) -> Any:
    """Calls `function`. In an error replaces the path of the scratch file, `found`, by the script's path."""
    try:
        return function(*args, **kwargs)
    except OSError as error:
        if error.filename == found and found is not path:
            error.filename = path
        raise
