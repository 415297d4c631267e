"""Marks steps with unusual events, whose times are not representative."""

from __future__ import annotations

import sys

#: Number of steps after which a compilation is unusual. Optimizers make their state in the first step, and CUDA graphs
#: are captured in the second.
WARM_UP_STEPS = 3


class Marks:
    """The marks of the current step."""

    def __init__(self) -> None:
        self._noted: dict[str, None] = {}
        self._graphs = 0

    def note(self, name: str) -> None:
        self._noted[name] = None

    def take(self, step: int) -> list[str]:
        """The marks of the step that ends now."""
        self._look_for_compilation(step)
        noted = list(self._noted)
        self._noted.clear()
        return noted

    def _look_for_compilation(self, step: int) -> None:
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is None:
            return
        graphs = dynamo.counters["stats"]["unique_graphs"]
        if graphs > self._graphs:
            self._graphs = graphs
            if step > WARM_UP_STEPS:
                self.note("recompile")
