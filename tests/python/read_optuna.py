"""Reads a journal with Optuna, checks its trials, and prints the study."""

import sys

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

storage = JournalStorage(JournalFileBackend(sys.argv[1]))
(name,) = optuna.get_all_study_names(storage)
study = optuna.load_study(study_name=name, storage=storage)
directions = [direction.name.lower() for direction in study.directions]
print("study:", study.study_name)
print("directions:", ", ".join(f"{metric} {way}" for metric, way in zip(study.metric_names, directions)))
print("user attributes:", {key: value for key, value in study.user_attrs.items() if key != "gputune_version"})
for trial in study.get_trials():
    for name, value in trial.params.items():
        distribution = trial.distributions[name]
        assert distribution._contains(distribution.to_internal_repr(value)), (name, value)
    assert trial.state.is_finished() and trial.datetime_start <= trial.datetime_complete
    assert abs((trial.datetime_complete - trial.datetime_start).total_seconds() - trial.user_attrs["elapsed_s"]) < 0.01
    print(trial.number, trial.state.name, trial.values, trial.intermediate_values, trial.params)
    print("  ", {key: value for key, value in trial.user_attrs.items() if key in ("outcome", "purpose", "reason", "why")})
first = study.get_trials()[0]
for name, distribution in first.distributions.items():
    print(name, distribution)
print("best:", [trial.params for trial in (study.best_trials if len(directions) > 1 else [study.best_trial])])
print(sorted(first.user_attrs))
# Optuna can continue the study.
trial = study.ask(study.get_trials()[1].distributions)
study.tell(trial, [1.0] * len(directions))
print("told:", len(study.get_trials()))
