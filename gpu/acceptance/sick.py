"""`gputune diagnose` on scripts of which the illness is known."""

from __future__ import annotations

import json
import shutil
import sys

from .context import SCRIPTS, Context
from .results import Report

#: The script's case, and words of which one is in the first cause that is told.
CASES = {
    "pageable": ("host to device", "host_to_device", "handing over", "pinned"),
    "item": ("synchron", "sync", "waits for the device", "reads"),
    "tiny": ("launch", "tiny", "batch", "overhead"),
    "fp32": ("precision", "fp32", "full precision"),
    "starved": ("starvation", "loader"),
    "healthy": ("healthy", "compute"),
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
SECONDS = 24


def sick(context: Context, report: Report, name: str) -> None:
    folder = context.folder(f"sick/{name}")
    shutil.rmtree(folder / "out", ignore_errors=True)
    words = ["--", sys.executable, SCRIPTS / "sick_case.py", name, "--device", context.device]
    done = context.gputune("diagnose", "--json", "--quiet", "--time", f"{SECONDS}s", "--out", folder / "out", *words)
    (folder / "diagnosis.json").write_text(done.stdout)
    try:
        content = json.loads(done.stdout)
    except ValueError:
        content = {}
    told = json.dumps(content.get("causes", content))[:4000].lower()
    first = json.dumps((content.get("causes") or [content])[0])[:400].lower() if content else ""
    expected = f"first of all: {CASES[name][0]}"
    report.number(seconds=done.seconds, diagnosis=content)
    if context.dry:
        report.skip("cause", expected, f"a dry run on the processor; {done.ended}")
    elif not content:
        report.judge("cause", expected, f"{done.ended}: {done.last_line()}", False)
    else:
        is_first = any(word in first for word in CASES[name])
        place = "" if is_first else " (named, but not first)" if any(word in told for word in CASES[name]) else ""
        report.judge("cause", expected, (first[:160] or "none") + place, is_first)
