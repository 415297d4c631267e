"""The rules that are the same for all peers: what a probe is, what it costs, and what a peer hears of it.

- A probe is a config that was not probed before. It counts whether it runs or fails.
- A config that was probed before is answered from the record, at no cost.
- A config that is not in the table is not in the space; the peer hears that it is as bad as the worst so far, at no
  cost.
- After `patience` such misses in a row, a config is drawn at random from those not probed, charged, and told to the
  peer.
- A run ends when the budget is spent, when every config was probed, or when the best of the table was found: from
  there on no budget could change its regret. With noise nobody can know that, and runs go on.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional, Protocol

from recorded import Config, Table


class Kind(Enum):
    """How a config was answered."""

    RAN = "ran"
    FAILED = "failed"
    OUTSIDE = "outside"


@dataclass(frozen=True)
class Answer:
    """What a peer hears. `log_time` is `None` unless the config ran."""

    kind: Kind
    log_time: Optional[float]


class Ended(Exception):
    """There is nothing left to probe for."""


class AskTell(Protocol):
    """A peer that proposes and is told."""

    def ask(self) -> Config:
        """What it would like probed next."""

    def tell(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        """What came of what it asked for; `worst` is the worst logarithm of a time so far."""

    def inform(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        """What came of a config that it did not ask for."""


@dataclass
class Session:
    """One run of one peer on one table: counts, answers, and keeps the best."""

    table: Table
    budget: int
    seed: int
    has_noise: bool = False
    answers: dict[Config, Answer] = field(default_factory=dict)
    # (probe, regret of what seemed the best after it), where it changed.
    curve: list[tuple[int, float]] = field(default_factory=list)
    failed: int = 0
    repeats: int = 0
    outside: int = 0
    drawn: int = 0
    worst: Optional[float] = None
    _best: float = math.inf

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.table.name}/{self.seed}")
        self.budget = min(self.budget, len(self.table.rows))

    @property
    def probes(self) -> int:
        """Probes so far."""
        return len(self.answers)

    @property
    def has_ended(self) -> bool:
        """Whether a further probe could not change the result, or is not allowed."""
        found = not self.has_noise and bool(self.curve) and self.curve[-1][1] <= 0.0
        return found or self.probes >= self.budget

    def answer(self, config: Config) -> tuple[Answer, bool]:
        """What a config came to, and whether that was a probe."""
        if config in self.answers:
            self.repeats += 1
            return self.answers[config], False
        if config not in self.table.rows:
            self.outside += 1
            return Answer(Kind.OUTSIDE, None), False
        if self.has_ended:
            raise Ended
        measured = self.table.rows[config]
        if measured is None:
            answer = Answer(Kind.FAILED, None)
            self.failed += 1
        else:
            noise = self.chance.gauss(0.0, measured.log_std) if self.has_noise else 0.0
            answer = Answer(Kind.RAN, measured.log_time + noise)
        self.answers[config] = answer
        if measured is not None and answer.log_time is not None:
            self._take(answer.log_time, self.table.regret(measured.log_time))
        return answer, True

    def draw(self) -> Config:
        """A config at random that was not probed."""
        self.drawn += 1
        return self.chance.choice([config for config in self.table.rows if config not in self.answers])

    def _take(self, log_time: float, regret: float) -> None:
        self.worst = log_time if self.worst is None else max(self.worst, log_time)
        if log_time < self._best:
            self._best = log_time
            self.curve.append((self.probes, max(regret, 0.0)))


def converse(peer: AskTell, session: Session, patience: int) -> None:
    """Lets a peer ask until the session has ended."""
    misses = 0
    while not session.has_ended:
        config = peer.ask()
        answer, is_probe = session.answer(config)
        peer.tell(config, answer, session.worst)
        misses = 0 if is_probe else misses + 1
        if misses >= patience:
            config = session.draw()
            answer, _ = session.answer(config)
            peer.inform(config, answer, session.worst)
            misses = 0


@dataclass
class Clock:
    """Processor time of this process since it was made, in seconds."""

    begin: float = field(default_factory=time.process_time)

    def read(self) -> float:
        """Seconds so far."""
        return time.process_time() - self.begin
