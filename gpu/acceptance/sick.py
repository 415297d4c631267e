"""`gputune diagnose` on scripts of which the illness is known."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from .context import SCRIPTS, Context
from .results import Report

#: The script's case, and the causes (`src/diagnosis/causes`) of which one has to be the bottleneck that is told.
CASES = {
    "pageable": ("host_to_device",),
    "item": ("synchronising_calls",),
    "tiny": ("launch_bound",),
    "fp32": ("wrong_precision",),
    # Its loader has no workers, and each of its samples takes work: three names for the same illness.
    "starved": ("single_threaded_loader", "cpu_preprocessing", "data_starvation"),
    "healthy": ("compute_bound",),
}
#: What each is.
ABOUT = {
    "pageable": "a script that copies from pageable memory",
    "item": "a script that reads `.item()` of each gradient",
    "tiny": "a script with a tiny batch",
    "fp32": "a script whose products are in fp32",
    "starved": "a script whose loader is too slow",
    "healthy": "a script with nothing wrong",
}
#: `gputune diagnose --time`; what is short of it is for its start and end.
SECONDS = 22
#: Of a dry run: the start of PyTorch on a machine that is busy, and some steps.
DRY_SECONDS = 18


def sick(context: Context, report: Report, name: str) -> None:
    folder = context.folder(f"sick/{name}")
    shutil.rmtree(folder / "out", ignore_errors=True)
    words = ["--", sys.executable, SCRIPTS / "sick_case.py", name, "--device", context.device]
    seconds = DRY_SECONDS if context.dry else SECONDS
    done = context.gputune("diagnose", "--json", "--quiet", "--time", f"{seconds}s", "--out", folder / "out", *words)
    (folder / "diagnosis.json").write_text(done.stdout)
    try:
        content = json.loads(done.stdout)
    except ValueError:
        content = {}
    first, others = causes(content)
    report.number(seconds=done.seconds, bottleneck=first, others=others, diagnosis=content)
    expected = f"first of all: {' or '.join(CASES[name])}"
    if content:
        report.judge("diagnosis", "ends and is whole", done.ended, done.code == 0 and "bottleneck" in content)
    if not content and context.dry:
        report.skip("cause", expected, f"a dry run: {done.last_line()}")
    elif not content:
        report.judge("cause", expected, f"{done.ended}: {done.last_line()}", False)
    elif context.dry:
        report.skip("cause", expected, f"a dry run, where it is {first or 'none'}")
    else:
        place = " (named, but not first)" if set(CASES[name]) & set(others) else ""
        report.judge("cause", expected, f"{first or 'none'}{place}", is_right(name, content))


def causes(content: dict[str, Any]) -> tuple[str, list[str]]:
    """The name of the bottleneck that `gputune diagnose --json` tells, and those of further causes."""
    others = [str(other.get("cause")) for other in content.get("others") or []]
    return str((content.get("bottleneck") or {}).get("cause", "")), others


def is_right(name: str, content: dict[str, Any]) -> bool:
    """Whether the bottleneck is what the script has; only one with nothing wrong may be called healthy."""
    return causes(content)[0] in CASES[name] and bool(content.get("is_healthy")) == (name == "healthy")
