"""Journals, specs and the ends of logs as one compressed file."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Iterator

FILE = "searches.tar.gz"
BYTES, LOG_BYTES = 14 << 20, 20_000
NAMES = ("journal.jsonl", "best.json", "trials.csv", "spec.toml", "summary.md")
SUFFIXES = (".log", ".txt")


def pack(state: Path, out: Path) -> None:
    """Writes the file whole or not at all. The newest files come first, as older ones may find no room."""
    written = 0
    draft = out / f"{FILE}.draft"
    with tarfile.open(draft, "w:gz") as archive:
        for path in sorted(wanted(state), key=lambda path: (-path.stat().st_mtime, path)):
            content = path.read_bytes()[-LOG_BYTES if path.suffix == ".log" else 0 :]
            if written + len(content) > BYTES:
                continue
            entry = tarfile.TarInfo(str(path.relative_to(state)))
            entry.size, entry.mtime = len(content), int(path.stat().st_mtime)
            archive.addfile(entry, io.BytesIO(content))
            written += len(content)
    draft.replace(out / FILE)


def wanted(state: Path) -> Iterator[Path]:
    """The files to pack. Caches have many files and no word about a failure."""
    for folder, folders, names in os.walk(state):
        if Path(folder) == state and "cache" in folders:
            folders.remove("cache")
        for name in names:
            path = Path(folder) / name
            if (name in NAMES or path.suffix in SUFFIXES) and path.is_file() and not path.is_symlink():
                yield path
