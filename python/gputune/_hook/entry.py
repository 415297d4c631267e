"""Starts the hook once torch is imported, or Keras with another back end.

Since 2.5 torch loads the hook through an entry point, if entry points are on. Otherwise `await_torch` starts it.
"""

from __future__ import annotations

import sys
from typing import Any

from gputune._client import Reporter
from gputune._hook import import_times, importing, writes
from gputune._hook.experiment import FIRST_RUN, Experiment

_is_installed = False


def await_torch() -> None:
    """Installs the hook after the import of torch. Does nothing outside a probe and a run of `gputune run`."""
    reporter = Reporter.current()
    asked = None if reporter is None else Experiment.of(reporter.probe)
    if asked is not None and asked.mode == FIRST_RUN:
        from gputune._hook.first_run import FIRST

        FIRST.install()
    if Reporter.hooked() is not None and "torch" not in sys.modules:
        if reporter is not None:
            import_times.TIMES.install()
        importing.after("torch", lambda module: torch_backend())
    if Reporter.hooked() is not None:
        importing.after("keras", _keras)


def torch_backend() -> None:
    """Installs the hook in this process, once. Does nothing outside a probe and a run, and never raises."""
    global _is_installed
    writes.install_or_end()
    try:
        reporter = Reporter.hooked()
        if reporter is None or _is_installed or not isinstance(reporter.probe.get("apply"), dict):
            return
        if reporter.probe.get("adapter") != "torch":
            return
        _is_installed = True
        from gputune._hook import install  # imports parts of torch, so torch must be loaded

        install.install(reporter.probe)
    except Exception as error:
        _report(error)


def _keras(keras: Any) -> None:
    """Installs the hook for `model.fit` of Keras 3, unless Keras trains through torch. Never raises."""
    try:
        reporter = Reporter.hooked()
        if reporter is None or reporter.probe.get("adapter") != "torch":
            return
        if keras.__version__.startswith(("1.", "2.")) or keras.backend.backend() == "torch":
            return
        from gputune._hook.keras_fit import KerasFit

        KerasFit(keras, reporter.probe).install()
    except Exception as error:
        _report(error)


def _report(error: Exception) -> None:
    message = f"gputune's hook: {type(error).__name__}: {error}"
    try:
        reporter = Reporter.current()
        if reporter is not None:
            reporter.send("error", kind="failed", message=message)
        else:
            print(f"{message}; the settings are not applied", file=sys.stderr, flush=True)
    except Exception:  # `import torch` must not fail
        pass
