"""What is known of a job because it was made that way: the words of the truth, and the record that goes with each script."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Optional

# Where the largest part of the time goes that could be saved.
DATA = "data"  # the step waits for samples
OUTSIDE = "outside"  # evaluation, checkpoints, epoch edges, logging
LOOP = "loop"  # the loop's own code between batches
COMMUNICATION = "communication"  # ranks wait for each other
COMPUTE = "compute"  # the device is busy, with what could be done in less time
HEALTHY = "healthy"  # the device is busy, and rightly so
BRANCHES = (DATA, OUTSIDE, LOOP, COMMUNICATION, COMPUTE, HEALTHY)

# How the loader alone answers to more workers.
CORES = "cores"  # it computes: as far as there are cores
BEYOND = "beyond"  # it waits: further than there are cores
SHARED = "shared"  # something is shared: not at all
SCALINGS = (CORES, BEYOND, SHARED)

SEEN = "seen"  # rules may be made on these
HELD_OUT = "held_out"  # and are judged on these, which whoever makes rules does not run
HALVES = (SEEN, HELD_OUT)


@dataclass(frozen=True)
class Disease:
    """One cause of one script."""

    kind: str
    branch: str
    cause: str
    remedy: str  # in words; the generator emits the script with it
    least: float  # what the cure brings at least, as a ratio of samples per second
    branches: tuple[str, ...]  # that may be said of it as well, where words overlap: logging is in a step and outside
    causes: tuple[str, ...]  # likewise
    scaling: Optional[str] = None  # of a loader
    setting: dict[str, int] = field(default_factory=dict)  # a parameter that helps, and its value
    lines: tuple[int, ...] = ()  # of the script that was made, the guilty one first, then those of the function that it calls

    @property
    def workers_cure(self) -> bool:
        """Whether a second worker helps."""
        return "workers" in self.setting

    def is_branch(self, branch: Optional[str]) -> bool:
        return branch is not None and branch in (self.branch, *self.branches)

    def is_cause(self, cause: Optional[str]) -> bool:
        return cause is not None and cause in (self.cause, *self.causes)


@dataclass(frozen=True)
class Truth:
    """All that is known of a job. The first disease costs most; a healthy job has none."""

    job: str
    half: str
    seed: int
    ranks: int
    workers: int
    batch: int  # of the script as it is
    diseases: tuple[Disease, ...]

    @property
    def is_healthy(self) -> bool:
        return not self.diseases

    @property
    def branch(self) -> str:
        return self.diseases[0].branch if self.diseases else HEALTHY

    @property
    def cause(self) -> str:
        return self.diseases[0].cause if self.diseases else HEALTHY

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        record = asdict(self)
        for disease, of in zip(record["diseases"], self.diseases):
            disease["workers_cure"] = of.workers_cure
        return {**record, "branch": self.branch, "cause": self.cause}
