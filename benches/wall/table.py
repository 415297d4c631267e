"""What the runs come to: the truth by the grid, and the tables."""

from __future__ import annotations

import math
import statistics
from typing import Iterable

from jobs import BASELINE, Config
from tools import Run

#: How near to the grid's best is near enough.
NEAR = 0.05

Runs = dict[str, list[Run]]


class Truth:
    """The throughput of each config: the median over the grids."""

    def __init__(self, grids: list[Run]) -> None:
        rates: dict[Config, list[float]] = {}
        for run in grids:
            for _, config, rate in run.measured:
                rates.setdefault(config, []).append(rate)
        self.rates = {config: statistics.median(values) for config, values in rates.items()}
        self.best = max(self.rates, key=lambda config: self.rates[config])

    def is_near(self, config: Config) -> bool:
        """Whether a config is as fast as the grid's best, or nearly so."""
        return self.rates.get(config, math.nan) >= (1 - NEAR) * self.rates[self.best]

    def speedup(self, config: Config) -> float:
        """Over the baseline; not a number where the config is not in the grid."""
        return self.rates.get(config, math.nan) / self.rates[BASELINE]

    def seconds_until_near(self, run: Run) -> float:
        """When the fastest config so far, by the tool's own measurements, is near the best for the first time."""
        highest = 0.0
        for seconds, config, rate in run.measured:
            if rate > highest:
                highest = rate
                if self.is_near(config):
                    return seconds
        return math.inf


def spread(values: Iterable[float], digits: int) -> str:
    """The median with the smallest and the largest; what never came is infinite."""
    kept = sorted(values)
    if any(map(math.isnan, kept)):
        return "not in the grid"
    if kept[0] == kept[-1]:
        return number(kept[0], digits)
    return f"{number(statistics.median(kept), digits)} ({number(kept[0], digits)} to {number(kept[-1], digits)})"


def number(value: float, digits: int) -> str:
    return "never" if math.isinf(value) else f"{value:.{digits}f}"


def said(config: Config) -> str:
    return f"{config.batch_size}, {config.workers}, {config.precision}"


def tools_table(runs: dict[str, Runs], rounds: int) -> list[str]:
    """Each tool on each script."""
    lines = [
        "| script | tool | measurements | seconds | until within 5 % of the best | speed-up |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for name, by_tool in runs.items():
        truth = Truth(by_tool["grid"])
        for tool, kept in by_tool.items():
            if not kept:
                lines.append(f"| {name} | {tool} | failed | | | |")
                continue
            if len(kept) < rounds:
                tool += f", {len(kept)} of {rounds} rounds, else failed"
            count = spread([len(run.measured) for run in kept], 0)
            seconds = spread([run.seconds for run in kept], 1)
            near = spread([truth.seconds_until_near(run) for run in kept], 1)
            speedup = spread([truth.speedup(run.pick) for run in kept], 2)
            lines.append(f"| {name} | {tool} | {count} | {seconds} | {near} | {speedup} |")
    return lines


def truth_table(runs: dict[str, Runs]) -> list[str]:
    """What there was to be found."""
    lines = [
        "| script | baseline, samples/s | best of the grid, samples/s | its batch size, workers, precision | speed-up "
        "| within 5 % of it | what two grids differ by |",
        "|---|--:|--:|---|--:|--:|--:|",
    ]
    for name, by_tool in runs.items():
        truth = Truth(by_tool["grid"])
        near = sum(map(truth.is_near, truth.rates))
        lines.append(
            f"| {name} | {truth.rates[BASELINE]:.0f} | {truth.rates[truth.best]:.0f} | {said(truth.best)} "
            f"| {truth.speedup(truth.best):.2f} | {near} of {len(truth.rates)} | {noise(by_tool['grid'], truth)} |"
        )
    return lines


def noise(grids: list[Run], truth: Truth) -> str:
    """The median over configs of the largest distance from the truth, as a share."""
    if len(grids) == 1:
        return ""
    worst: dict[Config, float] = {}
    for run in grids:
        for _, config, rate in run.measured:
            worst[config] = max(worst.get(config, 0.0), abs(rate / truth.rates[config] - 1))
    return f"{100 * statistics.median(worst.values()):.1f} %"


def spent_table(runs: dict[str, Runs], starts: Iterable[str]) -> list[str]:
    """What the time of gputune's searches went into."""
    lines = [
        "| script | start | importing | starting | warming up | measuring | ending | other |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, by_tool in runs.items():
        for start in starts:
            more = [run.more for run in by_tool.get(f"gputune {start}", [])]
            if not more:
                continue
            spent = [
                [each["spent"][part + "_s"] for each in more]
                for part in ("importing", "starting", "warming_up", "measuring", "ending")
            ]
            spent.append([each["failing_s"] + each["thinking_s"] for each in more])
            medians = " | ".join(f"{statistics.median(values):.1f}" for values in spent)
            lines.append(f"| {name} | `{start}` | {medians} |")
    return lines
