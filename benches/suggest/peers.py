"""Other optimisers on the history that gputune is measured on: the processor time of each proposal, and memory at the end.

usage: peers.py PEER < LINES > LINES

The first line that is read is a JSON object: for each parameter its number of settings and whether they are ordered, the trials
that are known (places of the settings, and the value to be made small, null where it failed), and how many proposals are wanted.
Each proposal is a line, and so is the answer to it. Parameters are given as places of their settings, ordered or not.
"""

import json
import logging
import resource
import sys
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
SEED = 1
# Who takes longer than this for a proposal is not measured to the end; the bench says so.
LONGEST_SECONDS = 5


class Trials:
    """A study of Optuna or rustuna, whose interfaces are alike; trials that failed are told as failed."""

    def __init__(self, package, sampler, parameters, trials):
        self.package, self.parameters = package, parameters
        self.study = package.create_study(sampler=sampler)
        of = package.distributions
        self.distributions = {
            f"p{at}": of.IntDistribution(0, levels - 1) if is_ordered else of.CategoricalDistribution(list(range(levels)))
            for at, (levels, is_ordered) in enumerate(parameters)
        }
        for places, value in trials:
            params = {f"p{at}": place for at, place in enumerate(places)}
            trial = package.trial.create_trial(
                params=params, distributions=self.distributions, value=value, state=self.state(value)
            )
            self.study.add_trial(trial)

    def state(self, value):
        states = self.package.trial.TrialState
        return states.FAIL if value is None else states.COMPLETE

    def ask(self):
        self.trial = self.study.ask()
        return [
            int(self.trial.suggest_int(f"p{at}", 0, levels - 1))
            if is_ordered
            else int(self.trial.suggest_categorical(f"p{at}", list(range(levels))))
            for at, (levels, is_ordered) in enumerate(self.parameters)
        ]

    def tell(self, _places, value):
        if value is None:
            self.study.tell(self.trial.number, state=self.state(None))
        else:
            self.study.tell(self.trial.number, value)


class Egor:
    """egobox has no way to hear of failures when it is asked and told: they are as bad as the worst."""

    def __init__(self, egobox, numpy, parameters, trials):
        self.numpy, self.trials = numpy, list(trials)
        kinds = [
            egobox.XSpec(egobox.XType.ORD, [float(place) for place in range(levels)])
            if is_ordered
            else egobox.XSpec(egobox.XType.ENUM, [float(levels)])
            for levels, is_ordered in parameters
        ]
        self.egor = egobox.Egor(kinds, seed=SEED)

    def ask(self):
        worst = max(value for _, value in self.trials if value is not None)
        x = self.numpy.array([places for places, _ in self.trials], dtype=float)
        y = self.numpy.array([[worst if value is None else value] for _, value in self.trials])
        return [int(round(float(place))) for place in self.egor.suggest(x, y, seed=SEED + len(y))[0]]

    def tell(self, places, value):
        # The same row twice makes its matrix singular.
        if all(places != known for known, _ in self.trials):
            self.trials.append((places, value))


def peer(name, parameters, trials):
    if name == "egobox":
        import egobox
        import numpy

        return Egor(egobox, numpy, parameters, trials), egobox.__version__
    if name == "rustuna TPE":
        import rustuna
        from importlib.metadata import version

        return Trials(rustuna, rustuna.samplers.TPESampler(seed=SEED), parameters, trials), version("rustuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if name == "Optuna GPSampler":
        import torch

        torch.set_num_threads(1)
        sampler = optuna.samplers.GPSampler(seed=SEED)
    else:
        sampler = optuna.samplers.TPESampler(seed=SEED)
    return Trials(optuna, sampler, parameters, trials), optuna.__version__


def main():
    asked = json.loads(sys.stdin.readline())
    try:
        optimiser, version = peer(sys.argv[1], asked["parameters"], asked["trials"])
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    print(json.dumps({"version": version}), flush=True)
    for _ in range(asked["proposals"]):
        begin = time.process_time()
        places = optimiser.ask()
        spent = time.process_time() - begin
        if spent > LONGEST_SECONDS:
            print(json.dumps({"too_long": f"{spent:.0f} s"}), flush=True)
            return
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"places": places, "seconds": spent, "peak_kib": peak}), flush=True)
        optimiser.tell(places, json.loads(sys.stdin.readline()))


main()
