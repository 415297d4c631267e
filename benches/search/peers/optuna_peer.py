"""Optuna: TPE and its Gaussian process."""

from __future__ import annotations

import warnings
from typing import Any, Optional

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from harness import Answer, Kind, Session, converse
from recorded import Config, Table

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


class _Study:
    """An Optuna study over a table's places.

    `is_native`: failures are trials that failed; otherwise they are as slow as the slowest so far. What is outside the
    space is as slow as the slowest so far in both.
    """

    def __init__(self, table: Table, sampler: optuna.samplers.BaseSampler, is_native: bool) -> None:
        self.names = [parameter.name for parameter in table.parameters]
        self.distributions: dict[str, BaseDistribution] = {
            parameter.name: IntDistribution(0, len(parameter.settings) - 1)
            if parameter.is_ordinal
            else CategoricalDistribution(list(range(len(parameter.settings))))
            for parameter in table.parameters
        }
        self.study = optuna.create_study(sampler=sampler)
        self.is_native = is_native
        self.trial: Any = None

    def ask(self) -> Config:
        self.trial = self.study.ask(self.distributions)
        return tuple(int(self.trial.params[name]) for name in self.names)

    def tell(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        value = self._value(answer, worst)
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        self.study.tell(self.trial, value, state=state)

    def inform(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        value = self._value(answer, worst)
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        params = dict(zip(self.names, config))
        self.study.add_trial(create_trial(state=state, params=params, distributions=self.distributions, value=value))

    def _value(self, answer: Answer, worst: Optional[float]) -> Optional[float]:
        if answer.kind is Kind.RAN:
            return answer.log_time
        return None if self.is_native and answer.kind is Kind.FAILED else worst


def tpe(session: Session) -> None:
    """TPE as it comes; failures are as slow as the slowest."""
    sampler = optuna.samplers.TPESampler(seed=session.seed)
    converse(_Study(session.table, sampler, is_native=False), session, patience=40)


def tpe_native(session: Session) -> None:
    """TPE as it comes; failures are failed trials, which it leaves aside."""
    sampler = optuna.samplers.TPESampler(seed=session.seed)
    converse(_Study(session.table, sampler, is_native=True), session, patience=40)


def gp(session: Session) -> None:
    """GPSampler as it comes; failures are as slow as the slowest."""
    sampler = optuna.samplers.GPSampler(seed=session.seed, deterministic_objective=not session.has_noise)
    converse(_Study(session.table, sampler, is_native=False), session, patience=8)


def gp_native(session: Session) -> None:
    """GPSampler as it comes; failures are failed trials, which it leaves aside."""
    sampler = optuna.samplers.GPSampler(seed=session.seed, deterministic_objective=not session.has_noise)
    converse(_Study(session.table, sampler, is_native=True), session, patience=8)
