"""egobox: Egor, a Gaussian process in Rust."""

from __future__ import annotations

from typing import Optional

import egobox
import numpy

from harness import Answer, Session, converse
from recorded import Config, Table

# Its own first design has dimensions + 1 points, at least 5; as many as the other peers start with do no worse.
FIRST = 10


class _Egor:
    """Egor over a table's places.

    Asked and told, it has no way to hear of failures: they are as slow as the slowest so far.
    """

    def __init__(self, table: Table, seed: int) -> None:
        self.specs = [
            egobox.XSpec(egobox.XType.ORD, [float(place) for place in range(len(parameter.settings))])
            if parameter.is_ordinal
            else egobox.XSpec(egobox.XType.ENUM, [float(len(parameter.settings))])
            for parameter in table.parameters
        ]
        self.seed = seed
        self.egor = egobox.Egor(self.specs, seed=seed)
        self.queue: list[Config] = []
        self.asked = 0
        self.known: set[Config] = set()
        self.x: list[Config] = []
        self.y: list[float] = []

    def ask(self) -> Config:
        self.asked += 1
        if len(self.known) < FIRST:
            if not self.queue:
                design = egobox.lhs(self.specs, FIRST, seed=1000 * self.seed + self.asked)
                self.queue = [_config(row) for row in design]
            return self.queue.pop()
        x = numpy.array(self.x, dtype=float)
        y = numpy.array(self.y, dtype=float).reshape(-1, 1)
        return _config(self.egor.suggest(x, y, seed=1000 * self.seed + self.asked)[0])

    def tell(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        value = worst if answer.log_time is None else answer.log_time
        # The same row twice makes its matrix singular.
        if value is not None and config not in self.known:
            self.known.add(config)
            self.x.append(config)
            self.y.append(value)

    inform = tell


def _config(row: numpy.ndarray) -> Config:
    return tuple(int(round(float(place))) for place in row)


def egor(session: Session) -> None:
    """Egor as it comes (LogEI)."""
    converse(_Egor(session.table, session.seed), session, patience=8)
