"""The result of a search, read from its folder."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import shlex
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from . import _program


class Interval(NamedTuple):
    """A number with its 95% interval; an end is `None` if it is unknown."""

    value: float
    low: float | None
    high: float | None


class WholeRun(NamedTuple):
    """The time of the whole training, with the baseline and with the best config.

    If `length` counts steps, they are steps of the baseline: the best config trains as many samples.
    """

    length: str
    baseline_seconds: float
    best_seconds: Interval

    @property
    def speedup(self) -> Interval:
        """The speedup of the whole run."""
        times = [self.baseline_seconds / seconds if seconds else None for seconds in self.best_seconds]
        return Interval(times[0] or 1.0, times[2], times[1])


class Study:
    """The result of a search. `report` has the content of its `best.json`."""

    def __init__(self, folder: Path, report: dict[str, Any]) -> None:
        self.folder = folder
        self.report = report

    @property
    def best(self) -> dict[str, Any]:
        """The best config: its settings by parameter."""
        return dict(self.report["config"])

    @property
    def verdict(self) -> str:
        """`faster`, `unproven`, `tied_with_baseline` or `no_baseline`."""
        return str(self.report["verdict"])

    @property
    def speedup(self) -> Interval | None:
        """The speedup of training steps over the baseline, 1 if the baseline is best; `None` if it is not proven."""
        return _interval(self.report.get("speedup"))

    @property
    def throughput(self) -> Interval | None:
        """The throughput of the best config, in units of `report["throughput"]["unit"]`."""
        return _interval(self.report.get("throughput"))

    @property
    def whole_run(self) -> WholeRun | None:
        """The time of the whole training; `None` if the step counts no samples."""
        run = self.report.get("run")
        best = _interval(run["best_s"]) if run else None
        return None if run is None or best is None else WholeRun(run["length"], run["baseline_s"], best)

    @property
    def limit(self) -> str | None:
        """The bottleneck of the best config; `None` if the step reports too little."""
        limit = (self.report.get("diagnosis") or {}).get("is")
        return limit["title"] if limit else None

    @property
    def command(self) -> str:
        """The command that trains with the best config."""
        return f"gputune run {shlex.quote(str(self.folder))}"

    @cached_property
    def trials(self) -> Any:
        """All trials and rounds: a `DataFrame` if pandas is installed, else a list of dictionaries.

        The columns are the same as in `trials.csv`. A missing value is `None`, in a `DataFrame` as pandas stores it.
        """
        table = csv.DictReader(io.StringIO(_program.output("report", str(self.folder), "--format", "trials")))
        trials = [{name: _value(text) for name, text in row.items()} for row in table]
        try:
            import pandas
        except ImportError:
            return trials
        return pandas.DataFrame(trials)

    def _rows(self) -> list[tuple[str, str]]:
        run, speedup, limit = self.whole_run, self.speedup, self.limit
        unproven = _interval(self.report.get("unproven_speedup"))
        rows = [("best", " ".join(f"{name}={_text(value)}" for name, value in self.best.items()))]
        if speedup is not None and self.verdict == "faster":
            rows.append(("speedup", _times(speedup)))
        elif unproven is not None:
            rows.append(("speedup", "not proven" if _is_vague(unproven) else f"not proven: {_times(unproven)}"))
        else:
            rows.append(("verdict", self.verdict.replace("_", " ")))
        if run is not None:
            before, after = _duration(run.baseline_seconds), _duration(run.best_seconds.value)
            if _is_vague(run.speedup):
                after = "not known"
            rows.append(("whole run", f"{before} -> {after} for {run.length}, {_times(run.speedup)}"))
        if limit is not None:
            rows.append(("limit", limit))
        return [*rows, ("command", self.command)]

    def __repr__(self) -> str:
        return f"Study({str(self.folder)!r})"

    def __str__(self) -> str:
        return "\n".join(f"{name:<9}  {text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        cells = [f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in self._rows()]
        return f"<table>{''.join(cells)}</table>"


def load(folder: str | os.PathLike[str]) -> Study:
    """Returns the result of the search in a folder such as `gputune-out/train`. The search may be running."""
    return Study(Path(folder), json.loads(_program.output("report", str(folder), "--json")))


def _interval(estimate: dict[str, Any] | None) -> Interval | None:
    return Interval(estimate["value"], estimate["low"], estimate["high"]) if estimate else None


def _value(text: str) -> Any:
    """Reads a cell of `trials.csv`."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _is_vague(speedup: Interval) -> bool:
    """True if an interval is so wide that its middle says little: its end is more than three times its begin."""
    return speedup.low is not None and speedup.high is not None and speedup.high > 3 * speedup.low


def _times(speedup: Interval) -> str:
    if _is_vague(speedup):
        low = speedup.low or 0.0
        return f"at least {low:.2f}x" if low >= 1.005 else "not known"
    ends = "" if speedup.low is None or speedup.high is None else f" ({speedup.low:.2f}x to {speedup.high:.2f}x)"
    return f"{speedup.value:.2f}x{ends}"


def _duration(seconds: float) -> str:
    size, unit = next((size, unit) for size, unit in ((3600, "h"), (60, "min"), (0, "s")) if seconds >= size)
    return f"{seconds / (size or 1):.3g} {unit}"
