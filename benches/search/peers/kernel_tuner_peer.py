"""Kernel Tuner in simulation mode: its strategies run on the table as if it were a cache of measured kernels."""

from __future__ import annotations

import importlib
import math
import random
import sys
import warnings
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, Callable

import numpy
from kernel_tuner import util
from kernel_tuner.interface import Options
from kernel_tuner.runners.simulation import SimulationRunner
from kernel_tuner.searchspace import Searchspace
from kernel_tuner.strategies import bayes_opt
from scipy.stats.qmc import LatinHypercube

from harness import Ended, Kind, Session
from recorded import Config, Parameter, Table

# So many repeats in a row end a run: some strategies never leave a population that has become one config.
PATIENCE = 20_000

# What a probe takes on the clock that its Bayesian strategy reads, in seconds. Its default method predicts anew
# only when probes take long beside predictions; replayed ones take no time, and it would work with stale
# predictions.
PROBE_SECONDS = 30.0


class _Cache(dict[str, dict[str, Any]]):
    """What the simulation looks configs up in: hands each on to the session."""

    def __init__(self, session: Session, names: list[str]) -> None:
        super().__init__()
        self.session = session
        self.names = names
        self.repeats = 0

    def __contains__(self, key: object) -> bool:
        return _config(str(key)) in self.session.table.rows

    def __getitem__(self, key: str) -> dict[str, Any]:
        config = _config(key)
        try:
            answer, is_probe = self.session.answer(config)
        except Ended as ended:
            raise util.StopCriterionReached("the session has ended") from ended
        self.repeats = 0 if is_probe else self.repeats + 1
        if self.repeats >= PATIENCE:
            raise util.StopCriterionReached("only repeats")
        result: dict[str, Any] = dict(zip(self.names, config))
        if answer.kind is Kind.FAILED:
            result["__error__"] = util.RuntimeFailedConfig()
        elif answer.log_time is not None:
            # Its strategies take ratios of times: they get times, not logarithms.
            result["time"] = math.exp(answer.log_time)
        return result


def _config(key: str) -> Config:
    return tuple(int(place) for place in key.split(","))


@lru_cache(maxsize=1)
def _space(name: str, parameters: tuple[Parameter, ...], configs: tuple[Config, ...]) -> Searchspace:
    """The space of exactly the recorded configs, so that every restriction is known to the strategies."""
    tune_params = {parameter.name: list(range(len(parameter.settings))) for parameter in parameters}
    cache = {str(config): dict(zip(tune_params, config)) for config in configs}
    return Searchspace(None, None, None, from_cache={"tune_params": tune_params, "cache": cache})


def _tune(session: Session, strategy: Any, **settings: Any) -> None:
    table: Table = session.table
    space = _space(table.name, table.parameters, tuple(table.rows))
    random.seed(session.seed)
    numpy.random.seed(session.seed)
    options = Options(
        tune_params=space.tune_params,
        cache=_Cache(session, list(space.tune_params)),
        objective=["time"],
        objective_higher_is_better=[False],
        metrics=None,
        restrictions=[],
        verbose=False,
        simulation_mode=True,
        simulated_time=0,
        strategy_options=Options(max_fevals=session.budget, **settings),
        budget=util.TuningBudget(None, session.budget),
    )
    runner = SimulationRunner(None, SimpleNamespace(kernel_name=table.name), SimpleNamespace(quiet=True), 1, [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strategy.tune(space, runner, options)


def strategy(name: str) -> Callable[[Session], None]:
    """The strategy of this module name, as it comes."""

    def run(session: Session) -> None:
        _tune(session, importlib.import_module(f"kernel_tuner.strategies.{name}"))

    return run


def _replayable(session: Session) -> None:
    """Gives its Latin hypercube a seed, and its clock the time that probes take."""
    bayes_opt.LatinHypercube = partial(LatinHypercube, seed=session.seed)
    bayes_opt.time = SimpleNamespace(
        perf_counter=lambda: session.probes * PROBE_SECONDS,
        perf_counter_ns=lambda: int(session.probes * PROBE_SECONDS * 1e9),
    )


def bayes_as_shipped(session: Session) -> None:
    """Its Bayesian strategy as it comes: a failure is an observation of 1.8e308."""
    _replayable(session)
    _tune(session, bayes_opt)


class _Mended(bayes_opt.BayesianOptimization):  # type: ignore[misc]
    """The same, with failures recognised: they come as the largest number, and it looks for another."""

    def is_valid(self, observation: float) -> bool:
        return observation is not None and bool(observation < min(self.invalid_value, sys.float_info.max))


def bayes_mended(session: Session, **settings: Any) -> None:
    """Its Bayesian strategy with the bug mended."""
    _replayable(session)
    shipped = bayes_opt.BayesianOptimization
    bayes_opt.BayesianOptimization = _Mended
    try:
        _tune(session, bayes_opt, **settings)
    finally:
        bayes_opt.BayesianOptimization = shipped


def bayes_mended_advanced(session: Session) -> None:
    """The same with another of its methods, which did better than its default in a trial of four."""
    bayes_mended(session, method="multi-advanced")
