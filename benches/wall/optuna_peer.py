"""Optuna with its TPE as it comes: a line of JSON for each trial. tools.py starts it with the Python of the peers.

It knows the baseline (`enqueue_trial`), as gputune does, and that is the first of its probes. A config that it asks for
again is measured again.
"""

import json
import sys

import optuna

from jobs import BASELINE, JOBS, Config, Space
from measure import Window, measure


def main():
    asked = json.loads(sys.argv[1])
    space, window = Space(*asked["space"]), Window(*asked["window"])

    def throughput(trial):
        config = Config(
            trial.suggest_categorical("batch_size", space.batch_sizes),
            trial.suggest_int("workers", space.workers[0], space.workers[-1]),
            trial.suggest_categorical("precision", space.precisions),
        )
        rate = measure(asked["python"], JOBS[asked["job"]], asked["project"], config, window)
        print(json.dumps({"config": config, "rate": rate}), flush=True)
        return rate

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=asked["seed"]))
    study.enqueue_trial(BASELINE._asdict())
    study.optimize(throughput, n_trials=asked["probes"], catch=(RuntimeError,))


if __name__ == "__main__":
    main()
