"""Memory that runs out, and memory that comes back."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from . import nvidia_smi, process
from .context import SPECS, Context
from .results import Report
from .tables import read_journal

TOLERANCE_MIB = 64.0


def after_sigkill(context: Context, report: Report, victim: str) -> None:
    """A step, or gputune itself, is killed by SIGKILL while 4 GiB are held."""
    before = nvidia_smi.memory_used_mib()
    if before is None:
        report.skip(victim, "memory is back", "nvidia-smi does not tell")
        return
    out = context.folder("sigkill") / victim
    command = [
        context.binary,
        "probe",
        str(SPECS / "load.toml"),
        "--quiet",
        "--out",
        str(out),
        "--set",
        "memory_gib=4",
    ]
    child = process.start(command, env=context.environment(), stdout=context.folder("sigkill") / f"{victim}.log")
    held = wait_until_held(child, before + 4096, 60)
    descendants = process.children(child.pid)
    killed = [pid for pid in descendants if is_load(pid)] if victim == "step" else [child.pid]
    process.kill(killed)
    if not held or not killed:
        process.end(child)
        report.judge(victim, "a probe that holds 4 GiB", "none was seen", False)
        return
    seconds = nvidia_smi.wait_for_memory(before, TOLERANCE_MIB, 30)
    report.number(**{f"{victim}_seconds": seconds})
    report.judge(
        f"memory after SIGKILL of the {victim}",
        "back within 10 s",
        "not within 30 s" if seconds is None else f"{seconds:.1f} s",
        seconds is not None and seconds < 10,
    )
    if victim == "gputune":
        time.sleep(1)
        left = [pid for pid in descendants if alive(pid)]
        report.judge("processes after SIGKILL of gputune", "none is left", f"{len(left)} left", not left)
    process.end(child)


def wait_until_held(child: subprocess.Popen[str], mib: float, limit: float) -> bool:
    end = time.monotonic() + limit
    while time.monotonic() < end and child.poll() is None:
        used = nvidia_smi.memory_used_mib()
        if used is not None and used >= mib:
            return True
        time.sleep(0.1)
    return False


def is_load(pid: int) -> bool:
    """Returns true for the Python of the step. The arguments of gputune's supervisor also name the script."""
    try:
        is_python = Path(f"/proc/{pid}/exe").resolve().name.startswith("python")
        return is_python and "load.py" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def alive(pid: int) -> bool:
    """Returns true if a process runs, and false for a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def out_of_memory(context: Context, report: Report) -> None:
    """PyTorch asks for more than any GPU has."""
    out = context.folder("oom") / "search"
    done = context.gputune(
        "search", SPECS / "oom.toml", "--out", out, "--fresh", "--quiet", "--format", "json", limit=120
    )
    journal = read_journal(out / "journal.jsonl")
    trials = {trial["config"].get("memory_gib"): trial for trial in journal}
    report.judge("the search's exit code", "0", done.ended, done.code == 0)
    fits = trials.get(1, {}).get("outcome")
    report.judge("1 GiB", "measured", str(fits), fits == "measured")
    large = [trial for trial in journal if trial["config"].get("memory_gib", 1) > 1]
    seen = [f"{trial['outcome']}: {str(trial.get('reason', ''))[:120]}" for trial in large]
    is_told = all(words.startswith("out_of_memory") and "out of memory" in words for words in seen)
    expected = "out_of_memory, in PyTorch's words"
    report.judge("4000 GiB or more", expected, "; ".join(seen) or "not tried", bool(seen) and is_told)
    # The search may try 8000 GiB first, and 4000 GiB after it.
    sizes = [trial["config"]["memory_gib"] for trial in large]
    report.judge("what is larger than that", "is not tried", f"{sizes} GiB, in this order", sizes == sorted(sizes, reverse=True))
