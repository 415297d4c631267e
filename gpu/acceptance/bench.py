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


def bench(context: Context, report: Report) -> None:
    """PyTorch before and after, so that a clock that drifts is seen; the larger of both counts."""
    before = torch_bench(context)
    done = context.gputune("device", "--bench", "--json", limit=60)
    after = torch_bench(context)
    report.judge("exit code", "0", done.ended, done.code == 0)
    report.judge("time", "under 30 s", f"{done.seconds:.1f} s", done.seconds < 30)
    try:
        content = json.loads(done.stdout)
    except ValueError:
        report.judge("--json", "a JSON document", done.last_line(), False)
        return
    report.number(gputune=content, torch_before=before, torch_after=after)
    for torch_name, name, unit, factor in COMPARED:
        reached = max((run[torch_name] for run in (before, after) if torch_name in run), default=None)
        measured = ceiling(content, name)
        if reached is None:
            report.skip(name, "at least 95 % of PyTorch's", "PyTorch's bench did not end well")
        elif measured is None:
            report.judge(name, f"at least 95 % of {factor * reached:.1f} {unit}", "absent", False)
        else:
            report.judge(
                name,
                f"at least 95 % of {factor * reached:.1f} {unit} (PyTorch)",
                f"{factor * measured:.1f} {unit} ({100 * measured / reached:.0f} %)",
                measured >= SHARE * reached,
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
