"""SMAC3: its facade for hyper-parameters, a random forest."""

from __future__ import annotations

import itertools
import logging
import tempfile
from functools import lru_cache
from typing import Any, Optional

from ConfigSpace import (
    CategoricalHyperparameter,
    Configuration,
    ConfigurationSpace,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
    OrdinalHyperparameter,
)
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory.dataclasses import TrialInfo, TrialValue

from harness import Answer, Kind, Session, converse
from recorded import Config, Parameter, Table

# Its own first design takes a quarter of all trials; the other peers start with ten.
FIRST = 10


class _Smac:
    """SMAC over a table's places.

    Known restrictions that concern two parameters are forbidden clauses. Others it cannot be told but by a clause for
    each config: what they exclude is as slow as the slowest so far, as are failures.
    """

    def __init__(self, table: Table, seed: int, folder: str) -> None:
        self.names = [parameter.name for parameter in table.parameters]
        self.space = _space(table.parameters, tuple(table.rows), seed)
        scenario = Scenario(
            self.space,
            deterministic=True,
            n_trials=1_000_000,
            seed=seed,
            output_directory=folder,  # type: ignore[arg-type]
        )
        self.smac = HyperparameterOptimizationFacade(
            scenario,
            target_function=lambda config, seed=0: 0.0,
            initial_design=HyperparameterOptimizationFacade.get_initial_design(scenario, n_configs=FIRST),
            overwrite=True,
            logging_level=False,
        )
        self.trial: Any = None

    def ask(self) -> Config:
        self.trial = self.smac.ask()
        return tuple(int(self.trial.config[name]) for name in self.names)

    def tell(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        value = worst if answer.kind is not Kind.RAN else answer.log_time
        self.smac.tell(self.trial, TrialValue(cost=0.0 if value is None else value, time=0.0), save=False)

    def inform(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        values = dict(zip(self.names, config))
        self.trial = TrialInfo(config=Configuration(self.space, values=values), seed=self.trial.seed)
        self.tell(config, answer, worst)


def _space(parameters: tuple[Parameter, ...], configs: tuple[Config, ...], seed: int) -> ConfigurationSpace:
    space = ConfigurationSpace(seed=seed)
    # The default has to be in the space; it is not probed for that.
    for parameter, default in zip(parameters, configs[len(configs) // 2]):
        places = list(range(len(parameter.settings)))
        kind = OrdinalHyperparameter if parameter.is_ordinal else CategoricalHyperparameter
        space.add(kind(parameter.name, places, default_value=default))
    for (first, place), (second, other) in _excluded_pairs(parameters, configs):
        space.add(
            ForbiddenAndConjunction(
                ForbiddenEqualsClause(space[parameters[first].name], place),
                ForbiddenEqualsClause(space[parameters[second].name], other),
            )
        )
    return space


@lru_cache(maxsize=32)
def _excluded_pairs(
    parameters: tuple[Parameter, ...], configs: tuple[Config, ...]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Settings of two parameters that no config has together."""
    columns = range(len(parameters))
    present = {
        (first, config[first], second, config[second])
        for config in configs
        for first, second in itertools.combinations(columns, 2)
    }
    return [
        ((first, place), (second, other))
        for first, second in itertools.combinations(columns, 2)
        for place in range(len(parameters[first].settings))
        for other in range(len(parameters[second].settings))
        if (first, place, second, other) not in present
    ]


def hpo(session: Session) -> None:
    """The facade as it comes, with ten configs to start with."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        converse(_Smac(session.table, session.seed, folder), session, patience=8)
