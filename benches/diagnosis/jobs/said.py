"""What gputune said, in the words of the truth. A new cause of gputune gets a row here; nothing else knows its names."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Optional

from truth import COMMUNICATION, COMPUTE, DATA, HEALTHY, LOOP, OUTSIDE

ELSEWHERE = "elsewhere"  # something outside of the job: other programs, a quota, heat, memory

# A cause's name in gputune's JSON: the branch, and the refined causes that it means.
WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cpu_preprocessing": (DATA, ("computing",)),
    "storage": (DATA, ("storage",)),
    "single_threaded_loader": (DATA, ("no_workers",)),
    "too_little_prefetch": (DATA, ("prefetch",)),
    "worker_imbalance": (DATA, ("imbalance",)),
    "worker_overhead": (DATA, ("handing_over",)),
    "slow_sampler": (DATA, ("computing",)),
    "data_starvation": (DATA, ()),  # why is not known
    "shared_source": (DATA, ("lock", "interpreter")),
    "worker_start": (OUTSIDE, ("epoch_edge",)),
    "evaluation": (OUTSIDE, ("evaluation",)),
    "checkpoints": (OUTSIDE, ("checkpoint",)),
    "own_code": (LOOP, ("python", "waiting")),
    "logging": (OUTSIDE, ("logging",)),
    "synchronising_calls": (LOOP, ("synchronising",)),
    "launch_bound": (COMPUTE, ("small_batch",)),
    "memory_limited": (COMPUTE, ("memory",)),
    "memory_bandwidth": (COMPUTE, ("bandwidth",)),
    "wrong_precision": (COMPUTE, ("precision",)),
    "host_to_device": (DATA, ("copies",)),
    "compute_bound": (HEALTHY, (HEALTHY,)),
    "communication": (COMMUNICATION, ("gradients",)),
    "straggler": (COMMUNICATION, ("straggler",)),
    "cpu_quota": (ELSEWHERE, ("quota",)),
    "crowded_cores": (ELSEWHERE, ("crowd",)),
    "spinning_threads": (ELSEWHERE, ("crowd",)),
    "shared_gpu": (ELSEWHERE, ("crowd",)),
    "host_memory": (ELSEWHERE, ("memory",)),
    "shared_memory": (ELSEWHERE, ("memory",)),
    "thermal_throttling": (ELSEWHERE, ("heat",)),
    "power_cap": (ELSEWHERE, ("power",)),
}

# Where the JSON of a cause may say which line of the script it means.
LINE_MEMBERS = ("line", "where", "lines", "code", "hot_lines")
IN_TEXT = re.compile(r"train\.py:(\d+)")


@dataclass(frozen=True)
class Named:
    """One cause that was named."""

    name: str
    branch: Optional[str]
    causes: tuple[str, ...]
    times: Optional[float]  # what it is worth if the cause vanished
    by_parameters: Optional[float]
    line: Optional[int]


@dataclass(frozen=True)
class Said:
    """A diagnosis, reduced to what can be judged. Without a first cause nothing could be told."""

    first: Optional[Named]
    others: tuple[Named, ...]
    is_healthy: bool
    seconds: Optional[float]
    branches: dict[str, Any] = field(default_factory=dict)

    @property
    def branch(self) -> Optional[str]:
        return self.first.branch if self.first else None


def named(cause: dict[str, Any]) -> Named:
    branch, causes = WORDS.get(cause["cause"], (None, ()))
    worth = cause.get("worth") or {}
    return Named(cause["cause"], branch, causes, worth.get("times"), worth.get("by_parameters"), line_of(cause))


def line_of(cause: dict[str, Any]) -> Optional[int]:
    """The first line of the script that a cause points at."""
    for member in LINE_MEMBERS:
        found = number_in(cause.get(member))
        if found is not None:
            return found
    found_in_text = IN_TEXT.search(json.dumps(cause))
    return int(found_in_text[1]) if found_in_text else None


def number_in(value: Any) -> Optional[int]:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        found = IN_TEXT.search(value)
        return int(found[1]) if found else None
    if isinstance(value, dict):
        file = value.get("file")
        if isinstance(file, str) and not file.endswith("train.py"):
            return None
        return next((number for key in ("line", "at") if (number := number_in(value.get(key))) is not None), None)
    if isinstance(value, list):
        return next((number for item in value if (number := number_in(item)) is not None), None)
    return None


def said(told: dict[str, Any]) -> Said:
    first = told.get("bottleneck")
    return Said(named(first) if first else None, tuple(named(other) for other in told.get("others", [])),
                bool(told.get("is_healthy")), told.get("elapsed_s"))
