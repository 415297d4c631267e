"""A recorded table: its space, as every peer is given it, and what each config came to."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

# One place in each parameter's list of settings.
Config = tuple[int, ...]

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Parameter:
    """One knob: its settings in order; a peer is told of their places, never of their values."""

    name: str
    settings: tuple[str, ...]
    is_ordinal: bool


@dataclass(frozen=True)
class Measured:
    """A config that ran: the logarithm of its time, up to a constant, and of how much a repeat of it varies."""

    log_time: float
    log_std: float


@dataclass(frozen=True)
class Table:
    """All recorded configs; `None` stands for one that failed. What is not recorded is not in the space."""

    name: str
    parameters: tuple[Parameter, ...]
    rows: dict[Config, Optional[Measured]]
    optimum: float

    @property
    def has_failures(self) -> bool:
        """Whether some configs fail."""
        return any(row is None for row in self.rows.values())

    def regret(self, log_time: float) -> float:
        """How far a config is below the best, as a share of the best."""
        return 1.0 - math.exp(self.optimum - log_time)


def names(folder: Path, only: list[str]) -> list[str]:
    """The tables of a folder whose names begin with one of `only`, or all, in order."""
    found = sorted(path.stem for path in folder.glob("*.csv"))
    return [name for name in found if not only or any(name.startswith(start) for start in only)]


@lru_cache(maxsize=None)
def load(folder: Path, name: str) -> Table:
    """A table of a folder."""
    path = folder / MANIFEST
    manifest = json.loads(path.read_text()) if path.exists() else {}
    return _load(folder / f"{name}.csv", manifest.get(name, {}))


def _load(path: Path, about: dict[str, Any]) -> Table:
    with path.open(newline="") as file:
        reader = csv.reader(file)
        header = [name.strip() for name in next(reader)]
        lines = [[cell.strip() for cell in line] for line in reader if any(cell.strip() for cell in line)]
    count = header.index("status")
    kinds = about.get("kinds", {})
    parameters = tuple(
        _parameter(header[column], [line[column] for line in lines], kinds.get(header[column]))
        for column in range(count)
    )
    places = [{text: place for place, text in enumerate(parameter.settings)} for parameter in parameters]
    sign = 1.0 if about.get("direction") == "min" else -1.0
    rows: dict[Config, Optional[Measured]] = {}
    for line in lines:
        config = tuple(places[column][line[column]] for column in range(count))
        rows[config] = _measured(dict(zip(header, line)), sign)
    optimum = min(row.log_time for row in rows.values() if row is not None)
    return Table(path.stem, parameters, rows, optimum)


def _parameter(name: str, texts: list[str], kind: Optional[str]) -> Parameter:
    """Numbers in ascending order, other settings in the order of their names."""
    distinct = set(texts)
    try:
        return Parameter(name, tuple(sorted(distinct, key=float)), kind != "categorical")
    except ValueError:
        return Parameter(name, tuple(sorted(distinct)), False)


def _measured(row: dict[str, str], sign: float) -> Optional[Measured]:
    if row["status"] != "ok":
        return None
    value = float(row["value"])
    std = float(row.get("value_std") or 0.0)
    return Measured(sign * math.log(value), std / value)
