"""How long a search takes from start to end, by the way its probes are started, and beside other ways to find a config.

    python3 benches/wall/run.py GPUTUNE PYTHON [--peers-python PEERS] [--rounds 3] [--out benches/results/wall.md]

The same search runs `fresh`, `warm` and `live` in turn, in folders of its own, on the scripts of this folder and of
examples/; beside it the whole grid, and with the Python of an environment made from peers.txt Optuna and loadtune. PYTHON
has the frameworks of the scripts. Tables are written of the wall time, of the time until each was near the grid's best, and
of the speed-up. With --lines, finished runs are appended to a file and not repeated, so the bench can be cut off and started
again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from typing import Any, Callable

import table
from jobs import BASELINE, JOBS, SMALL, SPACE
from measure import Window
from tools import Asked, Project, Run, gputune, grid, loadtune, make_data, optuna

STARTS = ("fresh", "warm", "live")
TOOLS = [*(f"gputune {start}" for start in STARTS), "optuna", "loadtune"]

NOTES = """\
A config is a batch size, a number of workers and a precision; the space has {configs}, and the baseline is
{baseline}. Seconds, medians over {rounds} rounds with the smallest and the largest; the machine has {cores} cores.

- **gputune**: {probes} probes, the baseline among them, and what confirms the leaders on top. A probe measures for 10
  s at most and ends sooner where it is precise enough (the defaults). Where a script has no options, its hook sets
  the config.
- **grid**: each config in a process of its own, {warm_up:g} s of warm-up after the first step and {window:g} s of
  measuring. Where a script has no options, the config is written into it. The median over the rounds is the truth for
  all.
- **optuna**: TPE as it comes with {probes} trials in the same processes with the same window; the baseline is its
  first trial. Its first ten trials are drawn at random, as it comes.
- **loadtune**: as it comes, with the batch size and the workers of the baseline, from which it searches the number of
  workers, and larger batches on a GPU only (`--auto-batch`). It runs no script: the plain ones are rewritten as its
  `Workload`, of the others its adapters take model and data, and train them without the framework's own loop. It
  measures 100 steps after 10.
- **until within 5 %**: until the config that was the fastest by the tool's own measurements is truly within 5 % of
  the grid's best.
- **speed-up**: of the config that the tool named over the baseline, both by the grid.
"""


def tools(asked: Asked) -> dict[str, Callable[[str, str, int], Run]]:
    """What runs on a job, in a project, in a round."""

    def search(start: str) -> Callable[[str, str, int], Run]:
        return lambda name, project, seed: gputune(asked, name, project, seed, start)

    found = {f"gputune {start}": search(start) for start in STARTS}
    found["grid"] = lambda name, project, seed: grid(asked, name, project)
    if asked.peers:
        found["optuna"] = lambda name, project, seed: optuna(asked, name, project, seed)
        found["loadtune"] = lambda name, project, seed: loadtune(asked, name, project)
    return found


def finished(path: str | None, settings: list[Any]) -> dict[tuple[str, str, int], Run]:
    """The runs of a file of lines that were asked for in the same way."""
    if path is None or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if line["settings"] == settings]
    return {(line["job"], line["tool"], line["round"]): Run.from_json(line["run"]) for line in lines}


def bench(asked: Asked, names: list[str], chosen: list[str], rounds: int, lines: str | None) -> dict[str, table.Runs]:
    """All runs: by job and tool, one for each round. The tools take turns."""
    settings = json.loads(json.dumps([asked.space, asked.probes, asked.window]))
    known = finished(lines, settings)
    runners = {tool: run for tool, run in tools(asked).items() if tool == "grid" or tool in chosen}
    found: dict[str, table.Runs] = {}
    for name in names:
        job = JOBS[name]
        by_tool = found[name] = {tool: [] for tool in runners}
        with Project(job) as made:
            make_data(asked.python, job, made)
            for turn in range(rounds):
                for tool, run in runners.items():
                    done = known.get((name, tool, turn))
                    if done is None:
                        try:
                            with Project(job, made) as project:
                                done = run(name, project, turn)
                        except RuntimeError as error:
                            print(f"{name}, {tool}: failed: {error}", file=sys.stderr, flush=True)
                            if tool == "grid":
                                raise
                            continue
                        print(f"{name}, {tool}: {done.seconds:.1f} s", file=sys.stderr, flush=True)
                        if lines is not None:
                            line = {"job": name, "tool": tool, "round": turn, "settings": settings, "run": done.to_json()}
                            with open(lines, "a", encoding="utf-8") as file:
                                file.write(json.dumps(line) + "\n")
                    by_tool[tool].append(done)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gputune")
    parser.add_argument("python")
    parser.add_argument("--peers-python", help="the Python of an environment made from peers.txt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--probes", type=int, default=8)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds, of the grid and Optuna")
    parser.add_argument("--window", type=float, default=3.0, help="seconds, of the grid and Optuna")
    parser.add_argument("--small", action="store_true", help="six configs, to try whether everything works")
    parser.add_argument("--only", choices=list(JOBS), action="append")
    parser.add_argument("--tool", choices=TOOLS, action="append", help="beside the grid, which always runs")
    parser.add_argument("--lines", help="a file of finished runs")
    parser.add_argument("--out")
    options = parser.parse_args()
    asked = Asked(
        gputune=os.path.abspath(options.gputune),
        python=os.path.abspath(options.python),
        peers=options.peers_python and os.path.abspath(options.peers_python),
        space=SMALL if options.small else SPACE,
        probes=options.probes,
        window=Window(options.warm_up, options.window),
    )
    runs = bench(asked, options.only or list(JOBS), options.tool or TOOLS, options.rounds, options.lines)
    notes = NOTES.format(
        configs=len(asked.space.configs()),
        baseline=table.said(BASELINE),
        rounds=options.rounds,
        cores=os.cpu_count(),
        probes=asked.probes,
        warm_up=asked.window.warm_up,
        window=asked.window.seconds,
    )
    text = "\n".join(
        [
            notes,
            *table.tools_table(runs, options.rounds),
            "\n## What there was to be found\n",
            *table.truth_table(runs),
            "\n## What the time of gputune went into\n",
            *table.spent_table(runs, STARTS),
        ]
    )
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(f"# Wall time of a search\n\n`python3 {shlex.join(sys.argv)}`\n\n{text}\n")
    print(text)


if __name__ == "__main__":
    main()
