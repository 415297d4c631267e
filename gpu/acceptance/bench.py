"""`gputune device --bench` against PyTorch on the same GPU."""

from __future__ import annotations

import json
import sys
from typing import Any, Optional

from . import process
from .context import SCRIPTS, Context
from .device import first
from .results import Report

SHARE = 0.95
# PyTorch's name, gputune's name, unit, factor to the unit.
COMPARED = [
    ("fp32", "matmul_fp32", "TFLOP/s", 1e-12),
    ("tf32", "matmul_tf32", "TFLOP/s", 1e-12),
    ("bf16", "matmul_bf16", "TFLOP/s", 1e-12),
    ("fp16", "matmul_fp16", "TFLOP/s", 1e-12),
    ("copy_on_device", "device_memory", "GB/s", 1e-9),
    ("to_device_pinned", "host_to_device_pinned", "GB/s", 1e-9),
    ("to_device_pageable", "host_to_device_pageable", "GB/s", 1e-9),
]


KEPT = "bench.json"


def bench(context: Context, report: Report) -> None:
    """What gputune reaches, kept for `compare`."""
    done = context.gputune("device", "--bench", "--json", limit=30)
    report.judge("exit code", "0", done.ended, done.code == 0)
    report.judge("time", "under 30 s", f"{done.seconds:.1f} s", done.code is not None and done.seconds < 30)
    try:
        content = json.loads(done.stdout)
    except ValueError:
        report.judge("--json", "a JSON document", done.last_line(), False)
        return
    (context.folder("bench") / KEPT).write_text(done.stdout)
    report.number(gputune=content)


def compare(context: Context, report: Report) -> None:
    """PyTorch right behind it: the first of a call, so that clocks are alike."""
    try:
        content = json.loads((context.folder("bench") / KEPT).read_text())
    except (OSError, ValueError):
        report.skip("ceilings", "at least 95 % of PyTorch's", "`ceilings` found none")
        return
    reached = torch_bench(context)
    report.number(torch=reached)
    for torch_name, name, unit, factor in COMPARED:
        witness, measured = reached.get(torch_name), ceiling(content, name)
        if witness is None:
            report.skip(name, "at least 95 % of PyTorch's", "PyTorch's bench did not end well")
        elif measured is None:
            report.judge(name, f"at least 95 % of {factor * witness:.1f} {unit}", "absent", False)
        else:
            report.judge(
                name,
                f"at least 95 % of {factor * witness:.1f} {unit} (PyTorch)",
                f"{factor * measured:.1f} {unit} ({100 * measured / witness:.0f} %)",
                measured >= SHARE * witness,
            )


def ceiling(content: Any, name: str) -> Optional[float]:
    """The median of one measurement of the first GPU, in FLOP/s or bytes per second."""
    measured = first(content, "measured") or {}
    median = measured.get(name, {}).get("median")
    return None if median is None else float(median)


def torch_bench(context: Context) -> dict[str, float]:
    done = process.run([sys.executable, str(SCRIPTS / "torch_bench.py")], min(context.left, 60))
    try:
        found = json.loads(done.stdout)
        return found if isinstance(found, dict) else {}
    except ValueError:
        return {}
