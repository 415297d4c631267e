"""Removing, renaming and making files in a scratch layer: the user's files stay in place."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, Optional

from gputune._hook.scratch_layer import Entry, Real, ScratchLayer, copy_file, failure


class LayerChanges:
    """Changes guarded paths.

    In each method `key` is a key of `ScratchLayer`, `path` is the script's path, and `own` is the layer's file.
    """

    def __init__(self, layer: ScratchLayer) -> None:
        self._layer = layer

    def unlink(self, key: str, path: Any) -> None:
        found = self._layer.status_of(key)
        if found is None:
            raise failure(errno.ENOENT, path)
        if stat.S_ISDIR(found.st_mode):
            raise failure(errno.EISDIR, path)
        self._remove(key)

    def rmdir(self, key: str, path: Any) -> None:
        found = self._layer.status_of(key)
        if found is None:
            raise failure(errno.ENOENT, path)
        if not stat.S_ISDIR(found.st_mode):
            raise failure(errno.ENOTDIR, path)
        if self._layer.names_in(key):
            raise failure(errno.ENOTEMPTY, path)
        self._remove(key)

    def _remove(self, key: str) -> None:
        """Removes the layer's file at a path, and hides the user's file."""
        layer = self._layer
        own = layer.files + key
        try:
            if stat.S_ISDIR(Real.lstat(own).st_mode):
                import shutil

                shutil.rmtree(own, ignore_errors=True)  # never contains the user's files
            else:
                Real.unlink(own)
        except OSError:
            pass
        try:
            Real.lstat(key)
        except OSError:
            layer.record(key, None)
        else:
            layer.record(key, Entry(None))

    def mkdir(self, key: str, path: Any, mode: int) -> None:
        if self._layer.status_of(key) is not None:
            raise failure(errno.EEXIST, path)
        target = self._layer.place_for(key, path)
        try:
            Real.mkdir(target, mode | stat.S_IRWXU)
        except FileExistsError:  # made earlier as a parent folder
            pass
        self._layer.record(key, Entry(target))

    def symlink(self, target: Any, key: str, path: Any) -> None:
        if self._layer.status_of(key) is not None:
            raise failure(errno.EEXIST, target, path)
        self._put_link(os.fsdecode(target), key, path)

    def _put_link(self, target: str, key: str, path: Any) -> None:
        own = self._layer.place_for(key, path)
        Real.symlink(target, own)
        self._layer.record(key, Entry(own, target))

    def link(self, source: str, key: str, path: Any) -> None:
        """Makes a hard link. For a user's file it only records an entry; a later write to `path` copies the file."""
        layer = self._layer
        file = layer.file_of(source)
        if file is None or layer.status_of(source) is None:
            raise failure(errno.ENOENT, path)
        if layer.status_of(key) is not None:
            raise failure(errno.EEXIST, path)
        own = layer.place_for(key, path)
        if layer.is_in_layer(file):
            Real.link(file, own)
            layer.record(key, Entry(own))
        else:
            layer.record(key, Entry(file))

    def rename(self, source: Optional[str], source_path: Any, key: Optional[str], path: Any) -> None:
        """Renames a path; `source` or `key` is `None` if that path is not guarded."""
        with self._layer.lock:
            if source is None:
                self._bring(source_path, key or "", path)
            elif key is None:
                self._take(source, source_path, path)
            else:
                self._check(source, source_path, key, path)
                if source != key:
                    self._move(source, key, path)

    def _check(self, source: str, source_path: Any, key: str, path: Any) -> None:
        layer = self._layer
        found, there = layer.status_of(source), layer.status_of(key)
        if found is None:
            raise failure(errno.ENOENT, source_path, path)
        self._check_target(stat.S_ISDIR(found.st_mode), there, key, source_path, path)
        if key.startswith(source + "/"):
            raise failure(errno.EINVAL, source_path, path)

    def _check_target(
        self, is_folder: bool, there: Optional[os.stat_result], key: str, source_path: Any, path: Any
    ) -> None:
        if there is None:
            return
        if stat.S_ISDIR(there.st_mode):
            if not is_folder:
                raise failure(errno.EISDIR, source_path, path)
            if self._layer.names_in(key):
                raise failure(errno.ENOTEMPTY, source_path, path)
        elif is_folder:
            raise failure(errno.ENOTDIR, source_path, path)

    def _move(self, source: str, key: str, path: Any) -> None:
        layer = self._layer
        file, target = layer.file_of(source) or source, layer.target_of(source)
        own = layer.place_for(key, path)
        if target is not None:
            self._clear(own)
            self._put_link(target, key, path)
        elif layer.is_folder(source):
            if not layer.is_folder(key) or layer.file_of(key) != own:
                try:
                    Real.mkdir(own, 0o777)
                except FileExistsError:
                    pass
                layer.record(key, Entry(own))
            for name in layer.names_in(source):
                self._move(os.path.join(source, name), os.path.join(key, name), path)
        elif layer.is_in_layer(file):
            Real.rename(file, own)
            layer.record(key, Entry(own))
        else:
            self._clear(own)
            layer.record(key, Entry(file))
        self._remove(source)

    def _clear(self, own: str) -> None:
        try:
            Real.unlink(own)
        except OSError:
            pass

    def _bring(self, source_path: Any, key: str, path: Any) -> None:
        """Moves a file from an unguarded place: some programs write a temporary file and rename it to its place."""
        layer = self._layer
        source = os.fsdecode(layer.reading(source_path, follow=False))
        found = Real.lstat(source)
        self._check_target(stat.S_ISDIR(found.st_mode), layer.status_of(key), key, source_path, path)
        own = layer.place_for(key, path)
        if layer.is_folder(key):
            self._remove(key)
        try:
            Real.rename(source, own)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            import shutil

            shutil.move(source, own)
        self._record_tree(own, key)

    def _record_tree(self, own: str, key: str) -> None:
        found = Real.lstat(own)
        if stat.S_ISLNK(found.st_mode):
            self._layer.record(key, Entry(own, Real.readlink(own)))
            return
        self._layer.record(key, Entry(own))
        if stat.S_ISDIR(found.st_mode):
            for name in Real.listdir(own):
                self._record_tree(os.path.join(own, name), os.path.join(key, name))

    def _take(self, source: str, source_path: Any, path: Any) -> None:
        """Moves a file to an unguarded place: copies the file, and makes the original look removed."""
        if self._layer.status_of(source) is None:
            raise failure(errno.ENOENT, source_path, path)
        self._copy_out(source, os.fsdecode(self._layer.reading(path)))
        self._remove_all(source)

    def _copy_out(self, source: str, target: str) -> None:
        layer = self._layer
        link = layer.target_of(source)
        if link is not None:
            Real.symlink(link, target)
        elif layer.is_folder(source):
            Real.mkdir(target, 0o777)
            for name in layer.names_in(source):
                self._copy_out(os.path.join(source, name), os.path.join(target, name))
        else:
            copy_file(layer.file_of(source) or source, target, target)

    def _remove_all(self, key: str) -> None:
        if self._layer.is_folder(key):
            for name in self._layer.names_in(key):
                self._remove_all(os.path.join(key, name))
        self._remove(key)
