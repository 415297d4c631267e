"""How many of the judged are right, for each half, and the page that says so."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any, Callable, Iterable, Optional

from judge import Judged
from truth import HALVES, HEALTHY

WITHIN = 2.0
NAMES = {"seen": "seen", "held_out": "kept out"}


def off(predicted: float, brought: float) -> float:
    """How many times too high or too low a prediction is."""
    return math.exp(abs(math.log(predicted / brought)))


def counts(judged: list[Judged]) -> dict[str, Any]:
    """All figures of a half."""
    sick = [one for one in judged if one.branch != HEALTHY]
    mixed = [one for one in judged if one.is_second_right is not None]
    after = [one for one in judged if one.variant != "sick"]
    lines = [one.is_line_right for one in judged if one.is_line_right is not None]
    seconds = [one.seconds for one in judged if one.seconds is not None]
    return {
        "top": ratio(one.top for one in judged),
        "refined": ratio(one.refined for one in judged),
        "healthy": ratio(one.top for one in judged if one.branch == HEALTHY),
        "line": ratio(lines),
        "silent": [sum(one.is_silent for one in sick), len(sick)],
        "denied": [sum(one.is_denied for one in sick), len(sick)],
        "worth": worth([(one.predicted, one.brought) for one in judged]),
        "by_parameters": worth([(one.by_parameters, one.set_brought) for one in judged]),
        "both_named": ratio(bool(one.refined and one.is_second_right) for one in mixed),
        "second_after_cure": ratio(one.refined for one in after),
        "seconds": [statistics.median(seconds), max(seconds)] if seconds else None,
    }


def ratio(answers: Iterable[bool]) -> list[int]:
    answers = list(answers)
    return [sum(answers), len(answers)]


def worth(pairs: list[tuple[Optional[float], Optional[float]]]) -> Optional[dict[str, float]]:
    known = [off(predicted, brought) for predicted, brought in pairs if predicted and brought]
    if not known:
        return None
    return {"median": statistics.median(known), "within": sum(one <= WITHIN for one in known), "of": len(known)}


ROWS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("largest branch right", lambda half: of(half["top"])),
    ("refined cause right", lambda half: of(half["refined"])),
    ("healthy called healthy", lambda half: of(half["healthy"])),
    ("line of code right, where one is named", lambda half: of(half["line"])),
    ("\"cannot be told\" although a branch holds over 20 %", lambda half: of(half["silent"])),
    ("called healthy although a branch holds over 20 %", lambda half: of(half["denied"])),
    ("worth of a cure: off by, median", lambda half: off_by(half["worth"])),
    ("worth of a cure: within 2x", lambda half: within(half["worth"])),
    ("worth of the setting: off by, median", lambda half: off_by(half["by_parameters"])),
    ("worth of the setting: within 2x", lambda half: within(half["by_parameters"])),
    ("mixtures: both causes named, in order", lambda half: of(half["both_named"])),
    ("mixtures: the second comes up once the first is cured", lambda half: of(half["second_after_cure"])),
    ("seconds of a diagnosis, median and most", lambda half: "–" if not half["seconds"] else "{:.0f}, {:.0f}".format(*half["seconds"])),
)


def of(pair: list[int]) -> str:
    return f"{pair[0]} of {pair[1]}" if pair[1] else "–"


def off_by(row: Optional[dict[str, float]]) -> str:
    return f"{row['median']:.2f}x" if row else "–"


def within(row: Optional[dict[str, float]]) -> str:
    return f"{row['within']} of {row['of']}" if row else "–"


def confusion(judged: list[Judged]) -> list[str]:
    """The truth by rows, gputune's words by columns."""
    named = [one.named or "(none)" for one in judged]
    columns = [name for name, _ in Counter(named).most_common()]
    rows: dict[str, Counter[str]] = {}
    for one, name in zip(judged, named):
        rows.setdefault(f"{one.branch}: {one.cause}" if one.branch != one.cause else one.branch, Counter())[name] += 1
    lines = [f"| truth | {' | '.join(columns)} |", "|---|" + "--:|" * len(columns)]
    lines += [f"| {truth} | {' | '.join(str(row[name] or '') for name in columns)} |" for truth, row in sorted(rows.items())]
    return lines


def page(title: str, about: dict[str, Any], judged: list[Judged], checks: list[dict[str, Any]], missing: tuple[str, ...] = ()) -> str:
    """`missing` are jobs that were not diagnosed, which the page says."""
    halves = {half: [one for one in judged if one.half == half] for half in HALVES}
    halves = {half: of_half for half, of_half in halves.items() if of_half}
    figures = {half: counts(of_half) for half, of_half in halves.items()}
    facts = ", ".join(f"{key} {value}" for key, value in about.items() if key not in ("commands", "gputune"))
    text = [f"# {title}", "", *(f"    {command}" for command in about["commands"]), "", f"{about['gputune']}, {facts}.", "",
            f"| | {' | '.join(NAMES[half] for half in figures)} |", "|---|" + "--:|" * len(figures)]
    text += [f"| {name} | {' | '.join(cell(figures[half]) for half in figures)} |" for name, cell in ROWS]
    if missing:
        text += ["", f"Not diagnosed: {', '.join(missing)}."]
    for half, of_half in halves.items():
        text += ["", f"## What was named: {NAMES[half]}", "", *confusion(of_half)]
    text += ["", "## Each diagnosis", "",
             "A mixture stands twice: as it is, and with its first cause cured. Brought: samples per second of the cured script over those "
             "of the sick one, without gputune. Predicted: what gputune says the cause is worth, where its branch is right.", "",
             "| job | half | truth | named | branch | cause | line | predicted | brought | then named | seconds |",
             "|---|---|---|---|---|---|---|--:|--:|---|--:|"]
    text += [row(one) for one in judged]
    text += ["", "## What the scripts are by themselves", "",
             "Samples per second of the variants over those of the script as it is. `cured0` has its first cause cured, `cured01` both, "
             "`set` the parameter that helps, `more` twice the workers, `replayed` the first batches again and again.", "",
             "| job | variants | against the truth |", "|---|---|---|"]
    text += [check_row(check) for check in checks]
    return "\n".join(text) + "\n"


def row(one: Judged) -> str:
    yes = {True: "yes", False: "no", None: ""}
    job = one.job if one.variant == "sick" else f"{one.job}, {one.variant}"
    truth = one.cause if one.branch == one.cause else f"{one.branch}: {one.cause}"
    seconds = "" if one.seconds is None else f"{one.seconds:.0f}"
    cells = (job, NAMES[one.half], truth, one.named or "(none)", yes[one.top], yes[one.refined], yes[one.is_line_right],
             number(one.predicted), number(one.brought), one.second or "", seconds)
    return f"| {' | '.join(cells)} |"


def number(value: Optional[float]) -> str:
    return "" if value is None else f"{value:.2f}x"


def check_row(check: dict[str, Any]) -> str:
    worths = ", ".join(f"{name} {value:.2f}x" for name, value in check["worth"].items()) or "healthy"
    return f"| {check['job']} | {worths} | {'; '.join(check['fails'])} |"
