"""Puts the parts of the hook together."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

from gputune._client import Reporter
from gputune._hook import experiment, observer
from gputune._hook.backward import Backward
from gputune._hook.by_hand import ByHand
from gputune._hook.errors import Errors
from gputune._hook.facts import Facts
from gputune._hook.loader import Loaders
from gputune._hook.marks import Marks
from gputune._hook.memory import Memory
from gputune._hook.modules import Modules
from gputune._hook.optimizers import Optimizers
from gputune._hook.session import Session
from gputune._hook.steps import Steps
from gputune._hook.stopping import Stopping
from gputune._hook.targets import TARGETS
from gputune._hook.timeline import Phases
from gputune._hook.transfers import Transfers


class Hook:
    """All parts of the hook in one process. A target changes what it needs of them."""

    def __init__(self, probe: dict[str, Any]) -> None:
        self.session = Session(probe)
        self.marks = Marks()
        self.phases = Phases()
        self.stopping = Stopping()
        self.memory = Memory(self.session)
        self.facts = Facts(self.session)
        self.loaders = Loaders(self.session, self.marks, self.stopping, self.facts, self.phases)
        self.steps = Steps(self.session, self.phases, self.loaders, self.marks, self.memory, self.stopping)
        self.backward = Backward(self.phases, self.steps)
        self.optimizers = Optimizers(self.session, self.phases, self.steps)
        self.modules = Modules(self.phases, self.steps, self.marks)
        self.transfers = Transfers(self.phases)
        self.errors = Errors(self.session, self.stopping)

    def install(self) -> None:
        parts = (self.errors, self.marks, self.loaders, self.transfers, self.backward, self.modules, self.optimizers)
        for part in parts:
            part.install()
        self.phases.changed.append(self.memory.begin)
        self.optimizers.after_step.append(lambda optimizer: self.modules.end_search())
        self.steps.graphs.install()
        self.steps.samples.modules = lambda: self.modules.found


def install(probe: dict[str, Any]) -> None:
    """Hooks this process, which has imported torch."""
    reporter = Reporter.current()
    folder = (reporter.folder if reporter is not None else None) or ""
    hook = Hook(probe)
    _seed(hook.session.seed)
    hook.install()
    ByHand(hook).install()
    asked = hook.session.experiment
    observer.make(hook, folder, asked is not None and asked.mode == experiment.OBSERVE).install()
    hook.steps.checks.append(lambda: _check_experiment(hook))
    for target in TARGETS:
        if target.name in hook.session.settings:
            hook.steps.reasons[target.name] = target.nothing
            target.install(hook)


def _check_experiment(hook: Hook) -> None:
    """At the first step: an experiment with the loader needs one."""
    asked = hook.session.experiment
    if asked is None or asked.mode == experiment.OBSERVE:
        return
    if asked.mode == experiment.LOADER_ONLY or not hook.loaders.is_replaying:
        message = (
            f"{asked.mode} needs a torch.utils.data.DataLoader that gives batches before the first step of the "
            "optimizer, with gradients on; none did"
        )
        hook.session.send("error", kind="rejected", message=message)


def _seed(seed: Any) -> None:
    """The same first batches and weights in each probe, so that their losses can be compared."""
    if seed is None:
        return
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
