"""Diagnoses a job by the real binary, and says what of it is right."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass
from typing import Any, Optional

from job import SICK, Job, Variant, cured
from measure import clean, command, write
from process import run
from said import Named, Said, said
from truth import HEALTHY, Disease

HOLDS = 0.2  # of the time: from then on a branch has to be named


@dataclass(frozen=True)
class Options:
    gputune: str
    python: str
    folder: pathlib.Path
    seconds: float


def variants(job: Job) -> list[Variant]:
    """What is diagnosed: the script as it is, and a mixture once more after its first cause is cured."""
    return [SICK, cured(0)] if len(job.kinds) == 2 else [SICK]


def diagnose(job: Job, variant: Variant, options: Options) -> dict[str, Any]:
    script = write(job, variant, options.folder)
    words = [options.gputune, "diagnose", "--json", "--quiet", "--out", str(script.parent / "out"), "--time", f"{options.seconds:g}s",
             "--", *command(job, script, options.python)]
    code, text, error = run(words, options.seconds + 60, cwd=script.parent)
    clean(job, options.folder)
    try:
        return {"told": json.loads(text)}
    except json.JSONDecodeError:
        return {"error": f"exit {code}: {error[-600:]}"}


@dataclass(frozen=True)
class Judged:
    """One diagnosis beside the truth. `None` where a question does not arise."""

    job: str
    half: str
    variant: str
    branch: str  # the truth's
    cause: str
    named: Optional[str]  # by gputune, in its own words
    top: bool
    refined: bool
    is_line_right: Optional[bool]
    is_silent: bool  # "cannot be told", with a branch over `HOLDS`
    is_denied: bool  # called healthy, likewise
    predicted: Optional[float]
    brought: Optional[float]
    by_parameters: Optional[float]
    set_brought: Optional[float]
    second: Optional[str]  # named second, in gputune's words
    is_second_right: Optional[bool]
    seconds: Optional[float]
    named_branch: Optional[str]


def judged(job: Job, variant: Variant, line: dict[str, Any], worth: Optional[dict[str, float]]) -> Judged:
    """What is right of a diagnosis; `worth` is what the check measured."""
    truth = job.truth()
    left = tuple(disease for number, disease in enumerate(truth.diseases) if number not in variant.cured)
    answer = said(line["told"]) if "told" in line else None
    first = left[0] if left else None
    brought = brought_by_cure(job, variant, worth)
    by_setting = (worth or {}).get("set") if variant == SICK else None
    is_top = is_top_right(first, answer)
    name = answer.first if answer else None
    second = next((other for other in answer.others if other.branch != HEALTHY), None) if answer else None
    return Judged(
        job.name, truth.half, variant.name, first.branch if first else HEALTHY, first.cause if first else HEALTHY,
        name.name if name else None, is_top, is_top and is_cause_right(first, name), line_right(job, variant, first, name),
        is_silent(first, answer, brought), is_denied(first, answer, brought), name.times if name and is_top and first else None, brought,
        name.by_parameters if name and is_top else None, by_setting, second.name if second else None,
        second_right(left, answer, second), answer.seconds if answer else None,
        HEALTHY if answer and answer.is_healthy else name.branch if name else None)


def is_top_right(first: Optional[Disease], answer: Optional[Said]) -> bool:
    if answer is None:
        return False
    return answer.is_healthy if first is None else not answer.is_healthy and first.is_branch(answer.branch)


def is_cause_right(first: Optional[Disease], name: Optional[Named]) -> bool:
    if first is None:
        return True
    return name is not None and any(first.is_cause(cause) for cause in name.causes)


def line_right(job: Job, variant: Variant, first: Optional[Disease], name: Optional[Named]) -> Optional[bool]:
    """Lines are those of the script that was diagnosed; `None` where the truth has none, or the JSON names none."""
    if first is None or name is None or name.line is None:
        return None
    number = next(number for number in range(len(job.kinds)) if number not in variant.cured)
    lines = job.script(variant).lines.get(number)
    return name.line in lines if lines else None


def is_silent(first: Optional[Disease], answer: Optional[Said], brought: Optional[float]) -> bool:
    return answer is not None and answer.first is None and holds_much(first, brought)


def is_denied(first: Optional[Disease], answer: Optional[Said], brought: Optional[float]) -> bool:
    return answer is not None and answer.is_healthy and holds_much(first, brought)


def holds_much(first: Optional[Disease], brought: Optional[float]) -> bool:
    return first is not None and 1 - 1 / (brought or first.least) > HOLDS


def second_right(left: tuple[Disease, ...], answer: Optional[Said], second: Optional[Named]) -> Optional[bool]:
    if len(left) < 2:
        return None
    return answer is not None and second is not None and left[1].is_branch(second.branch) and is_cause_right(left[1], second)


def brought_by_cure(job: Job, variant: Variant, worth: Optional[dict[str, float]]) -> Optional[float]:
    """What the cure of the first cause that is left brings, measured."""
    if not worth or job.is_healthy:
        return None
    if variant == SICK:
        return worth.get(cured(0).name)
    return worth[cured(0, 1).name] / worth[cured(0).name] if cured(0, 1).name in worth else None



