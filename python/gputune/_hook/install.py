"""Installs the hook: first its parts, then the targets and observers that act on the parts."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader

from gputune import _client
from gputune._client import Reporter
from gputune._hook import applying, experiment, imports, observer
from gputune._hook.by_hand import ByHand
from gputune._hook.data_parallel import DataParallel
from gputune._hook.first_run import FIRST
from gputune._hook.flops import Flops
from gputune._hook.import_times import TIMES
from gputune._hook.largest_batch import LargestBatch
from gputune._hook.live import Live
from gputune._hook.no_communication import NoCommunication
from gputune._hook.other_loaders import OtherLoaders
from gputune._hook.parts import Hook
from gputune._hook.run_length import RunLength
from gputune._hook.schedules import Schedules
from gputune._hook.sharding import Sharding
from gputune._hook.short_epochs import ShortEpochs
from gputune._hook.targets import TARGETS
from gputune._hook.tracing import Tracing


_NO_FIT = "the script trains with PyTorch; these targets act on model.fit of Keras 3 on JAX and TensorFlow"


def install(probe: dict[str, Any]) -> None:
    """Installs the hook in this process, which has imported torch."""
    is_measured = probe["socket"] is not None
    hook = Hook(probe) if is_measured else applying.Hook(probe)
    _seed(hook.session.seed)
    hook.install()
    ByHand(hook).install()
    OtherLoaders(hook).install()
    if is_measured:
        asked = hook.session.experiment
        observes = asked is not None and (asked.observe or asked.mode == experiment.OBSERVE)
        observer.make(hook, _folder(), observes).install()
        Flops(hook).install()
    DataParallel(hook).install()
    Sharding(hook).install()
    if is_measured:
        _install_checks(hook, probe)
    for target in TARGETS:
        if target.name in hook.session.settings:
            hook.steps.reasons[target.name] = target.nothing
            target.install(hook)
    for name in hook.session.settings:
        if name.startswith("keras."):
            hook.steps.reasons[name] = _NO_FIT


def _folder() -> str:
    reporter = Reporter.current()
    return (reporter.folder if reporter is not None else None) or ""


def _install_checks(hook: Hook, probe: dict[str, Any]) -> None:
    """Installs the experiment, the checks of the first step, and the orders of a live process."""
    folder = _folder()
    asked = hook.session.experiment
    if asked is not None and asked.mode == experiment.NO_COMMUNICATION:
        _install_no_communication(hook)
    if asked is not None and asked.mode == experiment.SHORT_EPOCHS:
        ShortEpochs(hook, asked.batches).install()
    if asked is not None and asked.mode == experiment.LARGEST_BATCH:
        LargestBatch(hook, asked.seconds).install()
    if asked is not None and asked.mode == experiment.FIRST_RUN:
        FIRST.watch_loaders(DataLoader)
        hook.steps.checks.append(FIRST.note_trainer)
        hook.steps.checks.append(lambda: FIRST.note("sized", hook.loaders.is_sized))
        hook.steps.checks.append(lambda: _note_samples(hook))
    if asked is not None and asked.mode == experiment.TRACE:
        Tracing(hook, folder).install()
    Schedules(hook).install()
    length = RunLength(hook)
    length.install()
    hook.steps.checks.append(length.say)
    hook.steps.checks.append(lambda: _check_experiment(hook))
    hook.steps.checks.append(lambda: hook.facts.say("import_seconds", TIMES.take()))
    if probe.get("imports"):
        hook.steps.checks.append(lambda: _tell_imports(folder))
    if hook.is_live:
        Live(hook).install()


def _tell_imports(folder: str) -> None:
    try:
        imports.write(folder)
    except OSError:  # without the list, later probes import everything again
        pass


def _install_no_communication(hook: Hook) -> None:
    silence = NoCommunication(hook)
    silence.install()

    def check() -> None:
        if silence.is_silent:
            hook.facts.say("no_communication", True)
        else:
            message = (
                "no_communication needs a DistributedDataParallel, or modules that fully_shard has sharded; the script "
                "trains with neither"
            )
            hook.session.send("error", kind="rejected", message=message)

    hook.steps.checks.append(check)


def _check_experiment(hook: Hook) -> None:
    """Rejects an experiment that needs a DataLoader if no DataLoader gave batches before the first step."""
    asked = hook.session.experiment
    if asked is None or asked.mode in experiment.AS_EVER:
        return
    if asked.mode == experiment.LOADER_ONLY or not hook.loaders.is_replaying:
        message = (
            f"{asked.mode} needs a torch.utils.data.DataLoader that gives batches before the first step of the "
            "optimizer, with gradients on; none did"
        )
        hook.session.send("error", kind="rejected", message=message)


def _seed(seed: Any) -> None:
    """Seeds all generators: each probe has the same first batches and weights, so that losses are comparable."""
    if seed is None:
        return
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def _note_samples(hook: Hook) -> None:
    """Notes the samples of the first step, unless the script reports its steps itself."""
    FIRST.note("samples", None if _client.user_steps else hook.steps.samples.of_last_step)
