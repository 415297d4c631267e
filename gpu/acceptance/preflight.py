"""What the machine has that all other checks stand on, and what it hides."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from . import machine, nvidia_smi, process
from .context import GPU_FOLDER, Context
from .meters import NOBODY, as_user, homes
from .results import Report

SHARED_BYTES = 1 << 30


def preflight(context: Context, report: Report) -> None:
    rows = nvidia_smi.query("name,driver_version,memory.total")
    if rows or not context.dry:
        report.judge("nvidia-smi", "names a GPU", ", ".join(rows[0]) if rows else "nothing", bool(rows))
    else:
        report.skip("nvidia-smi", "names a GPU", "a dry run, and it names none")
    missing = machine.missing_for_compile()
    note(report, "for torch.compile", "a C compiler and Python.h", missing and f"without {missing}")
    room = machine.shared_memory_bytes() or 0
    short = f"{room / 2**20:.0f} MiB" if room < SHARED_BYTES else ""
    note(report, "/dev/shm", f"{SHARED_BYTES / 2**30:.0f} GiB or more", short)
    gpm(context, report)
    processes(report)
    done = context.gputune("device", "--json", limit=max(1.0, context.left - 1))
    report.judge("gputune device --json", "exit code 0", done.ended, done.code == 0 and bool(read(done.stdout)))
    report.number(device=read(done.stdout))


def note(report: Report, what: str, expected: str, lack: str) -> None:
    """What other checks can do without, and say so: no failure of gputune."""
    if lack:
        report.skip(what, expected, lack)
    else:
        report.judge(what, expected, "there", True)


def gpm(context: Context, report: Report) -> None:
    """What NVML's own test of GPM gives to this user and to one without privileges."""
    users = [("GPM as this user", None)] + ([("GPM as nobody", NOBODY)] if os.geteuid() == 0 else [])
    answers: dict[str, Any] = {}
    for label, user in users:
        if user is not None and not shutil.which("setpriv"):
            report.skip(label, "SM activity, or a reason", "there is no setpriv")
            continue
        folder = context.folder("preflight")
        command = as_user([sys.executable, "-m", "acceptance.nvml", "0.3"], user)
        done = process.run(command, 6, cwd=Path("/"), env={"PYTHONPATH": str(GPU_FOLDER), **homes(folder)})
        answers[label] = read(done.stdout) or {"error": done.last_line()}
        told = (answers[label].get("means") or {}).get("sm_util")
        words = f"{told:.0f} %" if told is not None else str(answers[label].get("error", "not told"))
        report.tell(label, "SM activity, or a reason", words[:120])
    report.number(gpm=answers)


def processes(report: Report) -> None:
    """Whether this place sees the processes on the GPU: a container often sees none, or other numbers."""
    seen = nvidia_smi.query("pid,used_memory", "compute-apps")
    report.number(processes=seen)
    own = [row[0] for row in seen if row and row[0].isdigit() and Path(f"/proc/{row[0]}").exists()]
    words = f"{len(seen)} are listed, {len(own)} of them seen here"
    report.tell("processes on the GPU", "those of this place, by their numbers", words)


def read(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
        return content if isinstance(content, dict) else {"value": content}
    except ValueError:
        return {}
