"""rustuna: its TPE."""

from __future__ import annotations

from typing import Any, Optional

import rustuna

from harness import Answer, Kind, Session, converse
from recorded import Config, Table


class _Study:
    """A rustuna study over a table's places; see Optuna's."""

    def __init__(self, table: Table, seed: int, is_native: bool) -> None:
        self.parameters = table.parameters
        self.study = rustuna.create_study(sampler=rustuna.samplers.TPESampler(seed=seed), direction="minimize")
        self.is_native = is_native
        self.trial: Any = None

    def ask(self) -> Config:
        self.trial = self.study.ask()
        return tuple(
            int(self.trial.suggest_int(parameter.name, 0, len(parameter.settings) - 1))
            if parameter.is_ordinal
            else int(self.trial.suggest_categorical(parameter.name, list(range(len(parameter.settings)))))
            for parameter in self.parameters
        )

    def tell(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        value = self._value(answer, worst)
        if value is None:
            self.study.tell(self.trial.number, state=rustuna.trial.TrialState.FAIL)
        else:
            self.study.tell(self.trial.number, value)

    def inform(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        self.study.enqueue_trial({parameter.name: place for parameter, place in zip(self.parameters, config)})
        self.ask()
        self.tell(config, answer, worst)

    def _value(self, answer: Answer, worst: Optional[float]) -> Optional[float]:
        if answer.kind is Kind.RAN:
            return answer.log_time
        return None if self.is_native and answer.kind is Kind.FAILED else worst


def tpe(session: Session) -> None:
    """TPE as it comes; failures are as slow as the slowest."""
    converse(_Study(session.table, session.seed, is_native=False), session, patience=40)


def tpe_native(session: Session) -> None:
    """TPE as it comes; failures are failed trials."""
    converse(_Study(session.table, session.seed, is_native=True), session, patience=40)
