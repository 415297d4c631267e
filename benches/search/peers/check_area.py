"""Holds the report's areas against the methodology's own package: `python check_area.py search.json TABLES`.

Its arithmetic on the report's curves and the exact expectation of random search has to give the report's areas;
otherwise this fails. Its own idea of random search takes the value at the expected rank of the best instead of the
expected value: by how much that moves the areas is shown.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
from autotuning_methodology.baseline import RandomSearchCalculatedBaseline

import recorded
from plot import mean_curves

# Regrets are kept to 0.00001.
TOLERANCE = 1e-3


class _Exact(RandomSearchCalculatedBaseline):  # type: ignore[misc]
    """The package's baseline with another curve for random search."""

    def __init__(self, statistics: Any, curve: Any) -> None:
        super().__init__(statistics)
        self.curve = curve

    def get_curve(self, range: Any, x_type: str, dist: Any = None, confidence_level: Any = None) -> Any:
        return self.curve


def main(report: Path, folder: Path) -> int:
    """Compares every searcher on every table; the objective is the share of the best, failures are 0."""
    told = json.loads(report.read_text())
    curves = mean_curves(told["runs"], told["about"]["budget"])
    worst = 0.0
    for summary in told["tables"]:
        name = summary["name"]
        probes = numpy.arange(1, min(summary["cutoff"], told["about"]["budget"]) + 1)
        statistics = _statistics(recorded.load(folder, name))
        exact = _Exact(statistics, 1.0 - numpy.array(summary["random"][: len(probes)]))
        ranked = RandomSearchCalculatedBaseline(statistics)
        # Where the expected rank is that of the best there is no way left to measure on.
        usable = probes[ranked.get_curve(probes, "fevals") < 1.0]
        moved = []
        for (method, table), curve in curves.items():
            if table == name:
                shares = 1.0 - numpy.array(curve[: len(probes)])
                area = numpy.mean(exact.get_standardised_curve(probes, shares, "fevals"))
                worst = max(worst, abs(area - told["areas"][method][name]))
                own = numpy.mean(ranked.get_standardised_curve(usable, shares[: len(usable)], "fevals"))
                moved.append(own - area)
        print(f"{name}, to probe {len(probes)}: with the expected rank {numpy.mean(moved):+.3f} on average")
    print(f"largest difference of the arithmetic: {worst:.6f}")
    return int(worst > TOLERANCE)


def _statistics(table: recorded.Table) -> Any:
    """The part of the package's statistics of a table that its baseline reads."""
    shares = [0.0 if row is None else 1.0 - table.regret(row.log_time) for row in table.rows.values()]
    ascending = numpy.sort(numpy.array(shares))
    return SimpleNamespace(
        objective_performances_total_sorted=ascending,
        objective_performances_total_sorted_nan=ascending,
        minimization=False,
        total_performance_absolute_optimum=lambda: 1.0,
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
