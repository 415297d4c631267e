"""Marks on lines: a fragment ends a guilty line with `#@0!`, and the lines of the function that it calls with `#@0`.

The number is the disease's. Marks are taken off before anybody sees the script; where they stood is the truth."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

NOTHING = "#@"  # a place where nothing stands: its line goes
MARK = re.compile(r"\s*#@(\d+)(!?)\s*$")


@dataclass(frozen=True)
class Marked:
    """A script without its marks, and where they were: for each disease line numbers, the guilty one first."""

    source: str
    lines: dict[int, tuple[int, ...]]


def marked(block: str, number: int, best: str = "") -> str:
    """Marks every line of a block; the first that has `best` in it is the guilty one."""
    lines, is_open = [], bool(best)
    for line in block.splitlines():
        if not line.strip() or MARK.search(line):
            lines.append(line)
            continue
        is_best = is_open and best in line
        is_open = is_open and not is_best
        lines.append(f"{line}  #@{number}{'!' if is_best else ''}")
    return "\n".join(lines)


def without_marks(text: str) -> Marked:
    found: dict[int, list[int]] = {}
    clean = []
    for number, line in enumerate((line for line in text.splitlines() if line.strip() != NOTHING), 1):
        mark = MARK.search(line)
        if mark:
            lines = found.setdefault(int(mark[1]), [])
            lines.insert(0 if mark[2] else len(lines), number)
            line = line[: mark.start()]
        clean.append(line.rstrip())
    return Marked("\n".join(clean) + "\n", {disease: tuple(lines) for disease, lines in found.items()})


def indented(lines: list[str], depth: int) -> str:
    if not lines:
        return NOTHING
    return textwrap.indent("\n".join(textwrap.dedent(line).strip("\n") for line in lines), "    " * depth)
