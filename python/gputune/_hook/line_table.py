"""Keeps the lines in which a thread was sampled, in bounded memory, and reports the lines with most of its time."""

from __future__ import annotations

import json
import linecache
import os
from typing import Any, NamedTuple, Optional

#: Most rows of a table. If the table is full, the half with less time is merged into one row per kind, without a line.
_MOST_ROWS = 512
#: Most lines in a report, and most inner lines (`leaf`) for each line. So many lines fit a screen.
_MOST_TOLD = 8
_MOST_INSIDE = 3
#: Most bytes of a report, as the string of a fact may have at most 4096 bytes.
_MOST_BYTES = 4000
#: Most characters of a source line.
_LONGEST = 60
#: Lines with a smaller share of the time are not reported.
_LEAST_SHARE = 0.01

#: Time in which the thread evaluates the model.
EVALUATION = "evaluation"
#: Kinds of the script's own work. Under a line that also evaluates the model, this work counts as evaluation.
_OF_SCRIPT = ("loop", "logging", "sync")

#: The folder that relative file names refer to.
_FOLDER = os.getcwd()


class Place(NamedTuple):
    """A line of a file, and its function."""

    file: str
    line: int
    function: str


class Seen(NamedTuple):
    """The result of one sample of a thread."""

    kind: str
    site: Optional[Place]
    """The script's line in the loop, in the dataset or in a callback of a library."""
    leaf: Optional[Place]
    """The innermost line of the script within `site`; `None` if it equals `site`."""
    callee: str
    """The library function that this line called; empty without a call."""


class LineTable:
    """Seconds per kind, line and callee. One thread adds samples, and other threads may read at the same time."""

    def __init__(self) -> None:
        self.kinds: dict[str, float] = {}
        """Seconds of each kind."""
        self._rows: dict[Seen, list[float]] = {}  # seconds, samples, seconds of late samples

    def add(self, seen: Seen, seconds: float, looks: float = 1, late: float = 0.0) -> None:
        self.kinds[seen.kind] = self.kinds.get(seen.kind, 0.0) + seconds
        row = self._rows.get(seen)
        if row is None:
            if len(self._rows) >= _MOST_ROWS:
                self._shrink()
            row = self._rows.setdefault(seen, [0.0, 0, 0.0])
        row[0] += seconds
        row[1] += looks
        row[2] += late

    def add_all(self, rows: list[Any]) -> None:
        """Adds the rows that another process has written."""
        for kind, site, leaf, callee, seconds, looks, late in rows:
            seen = Seen(kind, None if site is None else Place(*site), None if leaf is None else Place(*leaf), callee)
            self.add(seen, seconds, looks, late)

    def rows(self) -> list[Any]:
        """All rows, most seconds first: kind, site, leaf, callee, seconds, samples, seconds of late samples."""
        rows = [[*seen, *row] for seen, row in list(self._rows.items())]
        return sorted(rows, key=lambda row: -row[4])

    def told(self) -> Optional[str]:
        """The lines with most of the time, in the format of `docs/design/facts.md`."""
        rows = self.rows()
        seconds = sum(row[4] for row in rows)
        if seconds <= 0:
            return None
        rows = _with_evaluation(rows)
        kinds: dict[str, float] = {}
        for row in rows:
            kinds[row[0]] = kinds.get(row[0], 0.0) + row[4] / seconds
        told: dict[str, Any] = {
            "samples": int(sum(row[5] for row in rows)),
            "seconds": round(seconds, 3),
            "kinds": {kind: round(share, 4) for kind, share in sorted(kinds.items(), key=lambda pair: -pair[1])},
            "lines": [],
        }
        text = json.dumps(told)
        for site in _by_site(rows):
            if site.place is None or site.seconds < _LEAST_SHARE * seconds or len(told["lines"]) == _MOST_TOLD:
                continue
            told["lines"].append(site.told(seconds))
            longer = json.dumps(told)
            if len(longer.encode()) > _MOST_BYTES:
                break
            text = longer
        return text

    def _shrink(self) -> None:
        rows = self.rows()
        self._rows = {}
        for kind, site, leaf, callee, seconds, looks, late in rows[: _MOST_ROWS // 2]:
            self._rows[Seen(kind, site, leaf, callee)] = [seconds, looks, late]
        for kind, _, _, _, seconds, looks, late in rows[_MOST_ROWS // 2 :]:
            row = self._rows.setdefault(Seen(kind, None, None, ""), [0.0, 0, 0.0])
            for at, more in enumerate((seconds, looks, late)):
                row[at] += more


class _Site:
    """All samples under one line of the loop."""

    def __init__(self, kind: str, place: Optional[Place]) -> None:
        self.kind = kind
        self.place = place
        self.seconds = self.looks = self.late = 0.0
        self._leaves: dict[Place, float] = {}
        self._callees: dict[str, float] = {}

    def add(self, leaf: Optional[Place], callee: str, seconds: float, looks: float, late: float) -> None:
        self.seconds += seconds
        self.looks += looks
        self.late += late
        if leaf is not None:
            self._leaves[leaf] = self._leaves.get(leaf, 0.0) + seconds
        if callee:
            self._callees[callee] = self._callees.get(callee, 0.0) + seconds

    def told(self, seconds: float) -> dict[str, Any]:
        if self.place is None:
            return {}
        told = {
            "kind": self.kind,
            **_told_place(self.place),
            "share": round(self.seconds / seconds, 4),
            "samples": int(self.looks),
        }
        if self.late > 0:
            told["late"] = round(self.late / self.seconds, 3)
        callee = max(self._callees, key=lambda name: self._callees[name], default="")
        if callee and self._callees[callee] >= self.seconds / 2:
            told["calls"] = callee
        leaves = sorted(self._leaves.items(), key=lambda pair: -pair[1])[:_MOST_INSIDE]
        shares = [(leaf, inner / seconds) for leaf, inner in leaves if inner > 0.1 * self.seconds]
        inside = [{**_told_place(leaf), "share": round(share, 4)} for leaf, share in shares]
        return {**told, "inside": inside} if inside else told


def _with_evaluation(rows: list[Any]) -> list[Any]:
    """The rows, with the kind `evaluation` for all work of the script under a line that evaluates the model."""
    evaluating = {site for kind, site, *_ in rows if kind == EVALUATION and site is not None}
    return [[EVALUATION, *row[1:]] if row[0] in _OF_SCRIPT and row[1] in evaluating else row for row in rows]


def _by_site(rows: list[Any]) -> list[_Site]:
    """Rows by their line in the loop, most seconds first. A line with several kinds of script work gets the longest."""
    own: dict[Optional[Place], str] = {}
    for row in rows:
        if row[0] in _OF_SCRIPT:
            own.setdefault(row[1], row[0])  # the row with most seconds comes first
    sites: dict[tuple[str, Optional[Place]], _Site] = {}
    for kind, place, leaf, callee, *numbers in rows:
        if kind in _OF_SCRIPT:
            kind = own[place]
        sites.setdefault((kind, place), _Site(kind, place)).add(leaf, callee, *numbers)
    return sorted(sites.values(), key=lambda site: -site.seconds)


def _told_place(place: Place) -> dict[str, Any]:
    path = os.path.normpath(os.path.join(_FOLDER, place.file))
    text = " ".join(linecache.getline(path, place.line).split())
    shown = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    return {"file": path[-512:], "line": place.line, "function": place.function[-100:], "code": shown}
