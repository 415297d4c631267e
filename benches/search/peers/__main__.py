"""Runs peers on recorded tables and appends one JSON line for each run.

    python benches/search/peers --tables FOLDER --lines FILE --peers optuna-tpe,rustuna-tpe --seeds 50

A run that the file already holds is not repeated, so that an interrupted one goes on where it was. Several
processes may share the work (`--share 1/2`, `--share 2/2`) and the file.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Iterator

import peers
import recorded
from one_run import run


def main() -> None:
    """Runs what the command line asks for."""
    asked = _asked()
    done = _done(asked.lines)
    for name, table, seed in _order(asked):
        key = (name, table, seed, asked.probes, asked.noise)
        if key not in done:
            work = _worker(peers.PEERS[name].package).submit(run, asked.tables, *key)
            line = work.result()
            with asked.lines.open("a") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            _say(line)


@lru_cache(maxsize=None)
def _worker(package: str) -> ProcessPoolExecutor:
    """A process for each package, so that what one leaves behind (threads, settings) never touches another."""
    return ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn"))


def _order(asked: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Cheap peers one after the other; costly ones seed by seed, so that every table has equally many at any time."""
    cheap = [name for name in asked.peers if not peers.PEERS[name].is_costly]
    costly = [name for name in asked.peers if peers.PEERS[name].is_costly]
    tables = recorded.names(asked.tables, asked.only)
    runs = [(name, table, seed) for table in tables for name in cheap for seed in range(asked.seeds)]
    runs += [(name, table, seed) for seed in range(asked.seeds) for name in costly for table in tables]
    runs = [run for run in runs if _is_apt(asked.tables, *run[:2])]
    part, parts = asked.share
    yield from (run for at, run in enumerate(runs) if at % parts == part - 1)


def _is_apt(folder: Path, name: str, table: str) -> bool:
    return not peers.PEERS[name].only_failures or recorded.load(folder, table).has_failures


def _done(path: Path) -> set[tuple[str, str, int, int, bool]]:
    if not path.exists():
        return set()
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return {(line["method"], line["table"], line["seed"], line["budget"], line["noise"]) for line in lines}


def _say(line: dict[str, Any]) -> None:
    last = line["curve"][-1] if line["curve"] else None
    what = f"{line['method']} {line['table']} {line['seed']}: {last} {line['seconds']} s"
    print(what + (f"\n{line['error']}" if "error" in line else ""), file=sys.stderr, flush=True)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ",".join(peers.PEERS)
    parser.add_argument("--tables", type=Path, required=True, help="folder of tables with their manifest.json")
    parser.add_argument("--only", type=_list, default=[], help="tables whose names begin with one of these")
    parser.add_argument("--lines", type=Path, required=True, help="file that the runs are appended to")
    parser.add_argument("--peers", type=_list, default=list(peers.PEERS), help=f"of {names}")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--probes", type=int, default=100, help="unique configs that a run may probe")
    parser.add_argument("--noise", action="store_true", help="each probe varies as its repeats did")
    parser.add_argument("--share", type=_share, default=(1, 1), help="1/2: the first of two halves of the work")
    asked = parser.parse_args()
    unknown = [name for name in asked.peers if name not in peers.PEERS]
    if unknown:
        parser.error(f"no peer named {', '.join(unknown)}; there are {names}")
    return asked


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _share(text: str) -> tuple[int, int]:
    part, parts = (int(number) for number in text.split("/"))
    if not 1 <= part <= parts:
        raise argparse.ArgumentTypeError("the first number counts from 1 to the second")
    return part, parts


if __name__ == "__main__":
    main()
