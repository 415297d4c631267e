"""The class `Hook`, which creates and connects the parts of the hook in one process."""

from __future__ import annotations

from typing import Any, Callable

from gputune._hook.backward import Backward
from gputune._hook.errors import Errors
from gputune._hook.facts import Facts
from gputune._hook.loader import Loaders
from gputune._hook.marks import Marks
from gputune._hook.memory import Memory
from gputune._hook.modules import Modules
from gputune._hook.optimizers import Optimizers
from gputune._hook.outside import Outside
from gputune._hook.session import Session
from gputune._hook.steps import Steps
from gputune._hook.stopping import Stopping
from gputune._hook.timeline import Phases
from gputune._hook.transfers import Transfers


class Hook:
    """All parts of the hook in one process. Targets and the observer may use the public attributes."""

    session_type, phases_type, loaders_type, steps_type = Session, Phases, Loaders, Steps

    def __init__(self, probe: dict[str, Any]) -> None:
        self.session = self.session_type(probe)
        self.is_live = bool(probe.get("live"))
        """True if settings may change while the process trains."""
        self._marks = Marks()
        self.phases = self.phases_type()
        self.outside = Outside(self.phases, self._marks)
        stopping = Stopping()
        self.facts = Facts(self.session)
        self.memory = Memory(self.session, self.facts)
        self.loaders = self.loaders_type(self.session, self._marks, stopping, self.facts, self.phases, self.outside)
        self.steps = self.steps_type(self.session, self.phases, self.loaders, self._marks, self.memory, stopping, self.facts)
        self.backward = Backward(self.phases, self.steps)
        self.optimizers = Optimizers(self.session, self.phases, self.steps)
        self.modules = Modules(self.phases, self.steps, self.outside)
        self._transfers = Transfers(self.phases)
        self._errors = Errors(self.session, stopping, self.memory)
        self.explanations = self._errors.explanations
        self.stopping = stopping
        self.changes: dict[str, Callable[[Any], None]] = {}
        """Functions that change the value of a target between two steps."""

    def install(self) -> None:
        parts = (self._errors, self.memory, self.outside, self.loaders, self._transfers, self.backward, self.modules, self.optimizers)
        for part in parts:
            part.install()
        self.phases.changed.append(self.memory.begin)
        self.steps.checks.append(self.outside.begin)
        self.steps.endings.append(self.outside.end_step)
        self.optimizers.after_step.append(lambda optimizer: self.modules.end_search())
        self.steps.graphs.install()
        self.steps.samples.modules = lambda: self.modules.found
