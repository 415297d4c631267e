"""Lists folders as a probe sees them: the user's files merged with the scratch layer."""

from __future__ import annotations

import os
import stat
from typing import Any, Iterator, Optional


class FolderEntry:
    """Replaces `os.DirEntry` for a folder that has entries in the layer."""

    def __init__(self, name: Any, path: Any) -> None:
        self.name = name
        self.path = path

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(stat.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        return self._is(stat.S_ISLNK, False)

    def is_junction(self) -> bool:
        return False

    def _is(self, kind: Any, follow_symlinks: bool) -> bool:
        try:
            return bool(kind(self.stat(follow_symlinks=follow_symlinks).st_mode))
        except FileNotFoundError:
            return False


class FolderEntries:
    """Replaces the iterator of `os.scandir`."""

    def __init__(self, path: Any, names: list[str]) -> None:
        as_given = os.fsencode if isinstance(path, bytes) else str
        self._entries: Optional[Iterator[FolderEntry]] = iter(
            [FolderEntry(as_given(name), os.path.join(path, as_given(name))) for name in names]
        )

    def __iter__(self) -> FolderEntries:
        return self

    def __next__(self) -> FolderEntry:
        if self._entries is None:
            raise StopIteration
        return next(self._entries)

    def close(self) -> None:
        self._entries = None

    def __enter__(self) -> FolderEntries:
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()
