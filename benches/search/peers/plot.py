"""Draws the mean regret over the probes, a picture for each family: `python plot.py search.json FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

OURS = "gputune-"
WITHOUT = " without "
UNIT = 1e-5
COLOURS = ["#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22"]
# Peers in a picture, beside random search: the best by their area, so that lines can be told apart.
PEERS = 6


def main(report: Path, folder: Path) -> None:
    """Draws one picture for each group of tables."""
    told = json.loads(report.read_text())
    budget = told["about"]["budget"]
    curves = mean_curves(told["runs"], budget)
    for table in told["tables"]:
        curves["random", table["name"]] = table["random"]
    folder.mkdir(parents=True, exist_ok=True)
    for group in told["groups"]:
        draw(group, curves, budget, folder / f"{group['name'].replace(' ', '-')}.svg")


def mean_curves(bundles: list[dict[str, Any]], budget: int) -> dict[tuple[str, str], list[float]]:
    """The mean regret after each probe, by searcher and table."""
    means = {}
    for bundle in bundles:
        runs = [regrets(curve, budget) for curve in bundle["curves"]]
        means[bundle["method"], bundle["table"]] = [sum(at) / len(runs) for at in zip(*runs)]
    return means


def regrets(curve: str, budget: int) -> list[float]:
    """The regret after each probe of a run, from its changes."""
    changes = {int(probe): int(regret) * UNIT for probe, regret in (step.split(":") for step in curve.split())}
    told, now = [], 1.0
    for probe in range(1, budget + 1):
        now = changes.get(probe, now)
        told.append(now)
    return told


def draw(group: dict[str, Any], curves: dict[tuple[str, str], list[float]], budget: int, path: Path) -> None:
    """One picture: gputune's strategies thick, the best peers thin, random search dashed."""
    names = [score["method"] for score in group["scores"] if WITHOUT not in score["method"]]
    ours = [name for name in names if name.startswith(OURS)]
    peers = [name for name in names if not name.startswith(OURS) and name not in ("random", "kt-random")][:PEERS]
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    for place, name in enumerate(ours + peers + ["random"]):
        rows = [curves[name, table] for table in group["tables"]]
        mean = [100 * sum(at) / len(rows) for at in zip(*rows)]
        width, line = 2.2 if name in ours else 1.1, "--" if name == "random" else "-"
        colour = "black" if name == "random" else COLOURS[place % len(COLOURS)]
        axes.plot(range(1, budget + 1), mean, label=name, color=colour, linewidth=width, linestyle=line)
    axes.set_xlabel("probes")
    axes.set_ylabel("mean regret in %")
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(0, 100)
    axes.set_xlim(1, budget)
    axes.set_yticks([0, 0.5, 1, 2, 5, 10, 20, 50, 100])
    axes.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.grid(alpha=0.3)
    axes.set_title(f"{group['name']} ({len(group['tables'])} tables)")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    # No date and no random names: the same results give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "gputune", "svg.fonttype": "none"})
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
