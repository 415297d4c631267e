"""Whether a job has what it is said to have: its script runs as it is, cured, and with the setting, all without gputune."""

from __future__ import annotations

import pathlib
from typing import Any

from job import MORE, REPLAYED, SET, SICK, Job, cured
from measure import clean, samples_per_second

# What a job can lose to its worst cause and still be called healthy (docs/diagnosis.md) is 1.1. A parameter that is said to help brings
# more, and so does the cure of the second cause of a mixture, with room for noise.
SETTING = 1.1
SECOND = 1.15

SHARED_GAIN = 1.2  # what gputune calls within the cost of a fork and a queue (docs/causes.md, a single-threaded loader)


def measure(job: Job, python: str, folder: pathlib.Path, seconds: float) -> dict[str, Any]:
    """Samples per second of each variant, the sick one before and after the others, as machines drift."""
    rates = {variant.name: samples_per_second(job, variant, python, folder, seconds) for variant in job.variants}
    if len(rates) > 1:
        again = samples_per_second(job, SICK, python, folder, seconds)
        rates["again"], rates["sick"] = again, (rates["sick"] + again) / 2
    clean(job, folder)
    return {"rates": rates, "steps": job.steps(), "worth": worth(rates), "fails": fails(job, worth(rates))}


def worth(rates: dict[str, float]) -> dict[str, float]:
    return {name: rate / rates["sick"] for name, rate in rates.items() if name not in ("sick", "again")}


def fails(job: Job, worth: dict[str, float]) -> list[str]:
    """What speaks against the truth that was written down."""
    if job.is_healthy:
        gain = worth[REPLAYED.name]
        return [f"replayed batches bring {gain:.2f}, so it is not healthy"] if gain > SETTING else []
    first = worth[cured(0).name]
    if len(job.kinds) == 2:
        return mixture_fails(first, worth[cured(1).name], worth[cured(0, 1).name])
    found = []
    least = job.kinds[0].least
    if first < least:
        found.append(f"the cure brings {first:.2f}, less than {least:.2f}")
    if job.setting and worth[SET.name] < SETTING:
        found.append(f"{job.setting[0]} = {job.setting[1]} brings {worth[SET.name]:.2f}, less than {SETTING:.2f}")
    if MORE.name in worth and worth[MORE.name] > SHARED_GAIN:
        found.append(f"twice the workers bring {worth[MORE.name]:.2f}, more than {SHARED_GAIN:.2f}")
    return found


def mixture_fails(first: float, second: float, both: float) -> list[str]:
    found = []
    if first < second:
        found.append(f"to cure the first brings {first:.2f}, less than the second with {second:.2f}")
    if first < SECOND:
        found.append(f"to cure the first brings {first:.2f}, less than {SECOND:.2f}")
    if both / first < SECOND:
        found.append(f"to cure the second after the first brings {both / first:.2f}, less than {SECOND:.2f}")
    return found
