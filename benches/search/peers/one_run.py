"""One run of one peer on one table with one seed."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import peers
import recorded
from harness import Clock, Ended, Session


def run(folder: Path, name: str, table: str, seed: int, probes: int, noise: bool) -> dict[str, Any]:
    """One run, as a line."""
    session = Session(recorded.load(folder, table), probes, seed, noise)
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
        "table": table,
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
