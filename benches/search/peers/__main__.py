"""Runs peers on recorded tables and appends one JSON line for each run.

    python benches/search/peers --tables FOLDER --lines FILE --peers optuna-tpe,rustuna-tpe --seeds 50

A run that the file already holds is not repeated, so that an interrupted one goes on where it was. Several processes may share
the work (`--share 1/2`, `--share 2/2`) and the file.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import json
import sys
import traceback
from pathlib import Path
from typing import Iterator

import peers
import recorded
from harness import Clock, Ended, Session


def main() -> None:
    """Runs what the command line asks for."""
    asked = _asked()
    tables = recorded.load(asked.tables, asked.only)
    done = _done(asked.lines)
    for name, table, seed in _order(asked, tables):
        key = (name, table.name, seed, asked.probes, asked.noise)
        if key not in done:
            line = run(name, table, seed, asked.probes, asked.noise)
            with asked.lines.open("a") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            _say(line)


def run(name: str, table: recorded.Table, seed: int, probes: int, noise: bool) -> dict:
    """One run, as a line."""
    session = Session(table, probes, seed, noise)
    search = peers.PEERS[name].search()  # not in the time that is told: it imports the package
    clock, error = Clock(), None
    try:
        search(session)
    except Ended:
        pass
    except Exception:  # what a peer does wrong is part of its result
        error = traceback.format_exc(limit=-2).strip()
    return {
        "method": name,
        "table": table.name,
        "seed": seed,
        "budget": probes,
        "noise": noise,
        "curve": [[probe, float(f"{regret:.6g}")] for probe, regret in session.curve],
        "probes": session.probes,
        "failed": session.failed,
        "repeats": session.repeats,
        "outside": session.outside,
        "drawn": session.drawn,
        "seconds": round(clock.read(), 4),
        "version": peers.version(name),
        **({"error": error} if error else {}),
    }


def _order(asked: argparse.Namespace, tables: list[recorded.Table]) -> Iterator[tuple[str, recorded.Table, int]]:
    """Cheap peers one after the other; costly ones seed by seed, so that every table has equally many at any time."""
    cheap = [name for name in asked.peers if not peers.PEERS[name].is_costly]
    costly = [name for name in asked.peers if peers.PEERS[name].is_costly]
    runs = [(name, table, seed) for table in tables for name in cheap for seed in range(asked.seeds)]
    runs += [(name, table, seed) for seed in range(asked.seeds) for name in costly for table in tables]
    part, parts = asked.share
    yield from (run for at, run in enumerate(runs) if at % parts == part - 1)


def _done(path: Path) -> set[tuple]:
    if not path.exists():
        return set()
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return {(line["method"], line["table"], line["seed"], line["budget"], line["noise"]) for line in lines}


def _say(line: dict) -> None:
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
