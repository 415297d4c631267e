"""Experiments: tasks of a probe in addition to training, or instead of it. `probe.json` holds the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

OBSERVE = "observe"
REPLAY = "replay"
LOADER_ONLY = "loader_only"
NO_COMMUNICATION = "no_communication"
SHORT_EPOCHS = "short_epochs"
LARGEST_BATCH = "largest_batch"
FIRST_RUN = "first_run"
TRACE = "trace"

#: Experiments that train on the loader's batches, like an ordinary probe.
AS_EVER = (OBSERVE, NO_COMMUNICATION, SHORT_EPOCHS, LARGEST_BATCH, FIRST_RUN, TRACE)


@dataclass(frozen=True)
class Experiment:
    """An experiment; `docs/design/facts.md` explains the members."""

    mode: str
    batches: int = 8
    workers: tuple[int, ...] = (0, 1, 2, 4)
    seconds: float = 2.5
    observe: bool = False

    @classmethod
    def of(cls, probe: dict[str, Any]) -> Optional[Experiment]:
        """The experiment of a probe; `None` in an ordinary probe."""
        asked = probe.get("experiment")
        if not isinstance(asked, dict):
            return None
        return cls(
            str(asked.get("mode", OBSERVE)),
            max(int(asked.get("batches", cls.batches)), 1),
            tuple(max(int(count), 0) for count in asked.get("workers", cls.workers)),
            float(asked.get("seconds", cls.seconds)),
            bool(asked.get("observe", cls.observe)),
        )


def settings_of(probe: dict[str, Any]) -> dict[str, Any]:
    """Settings of an experiment in addition to the parameters of the space."""
    asked = probe.get("experiment")
    settings = asked.get("set") if isinstance(asked, dict) else None
    return settings if isinstance(settings, dict) else {}
