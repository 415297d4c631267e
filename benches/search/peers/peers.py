"""All peers by name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import version as installed
from typing import Callable, cast

from harness import Session

# Searches until the session ends.
Search = Callable[[Session], None]


@dataclass(frozen=True)
class Peer:
    """One way to search: the package it is in, and where to find it here.

    `only_failures`: it is another peer but for what it makes of failures, and left out where no config fails.
    """

    package: str
    module: str
    function: str
    is_costly: bool = False
    only_failures: bool = False

    def search(self) -> Search:
        """What searches until the session ends. What it needs is only now imported."""
        module = importlib.import_module(self.module)
        if self.module == "kernel_tuner_peer" and not hasattr(module, self.function):
            return cast(Search, module.strategy(self.function))
        return cast(Search, getattr(module, self.function))


PEERS = {
    "rustuna-tpe": Peer("rustuna", "rustuna_peer", "tpe"),
    "rustuna-tpe-native": Peer("rustuna", "rustuna_peer", "tpe_native", only_failures=True),
    "optuna-tpe": Peer("optuna", "optuna_peer", "tpe"),
    "optuna-tpe-native": Peer("optuna", "optuna_peer", "tpe_native", only_failures=True),
    "kt-random": Peer("kernel_tuner", "kernel_tuner_peer", "random_sample"),
    "kt-annealing": Peer("kernel_tuner", "kernel_tuner_peer", "simulated_annealing"),
    "kt-genetic": Peer("kernel_tuner", "kernel_tuner_peer", "genetic_algorithm"),
    "kt-dual-annealing": Peer("kernel_tuner", "kernel_tuner_peer", "dual_annealing"),
    "kt-tabu-greywolf": Peer("kernel_tuner", "kernel_tuner_peer", "gen_adaptive_tabu_greywolf"),
    "kt-hybrid-vndx": Peer("kernel_tuner", "kernel_tuner_peer", "gen_hybrid_vndx"),
    "kt-bayes": Peer("kernel_tuner", "kernel_tuner_peer", "bayes_as_shipped", is_costly=True),
    "kt-bayes-mended": Peer("kernel_tuner", "kernel_tuner_peer", "bayes_mended", is_costly=True),
    "kt-bayes-advanced": Peer("kernel_tuner", "kernel_tuner_peer", "bayes_mended_advanced", is_costly=True),
    "optuna-gp": Peer("optuna", "optuna_peer", "gp", is_costly=True),
    "egobox": Peer("egobox", "egobox_peer", "egor", is_costly=True),
    "smac": Peer("smac", "smac_peer", "hpo", is_costly=True),
    "optuna-gp-native": Peer("optuna", "optuna_peer", "gp_native", is_costly=True, only_failures=True),
}


def version(name: str) -> str:
    """The version of a peer's package, as installed."""
    return installed(PEERS[name].package)
