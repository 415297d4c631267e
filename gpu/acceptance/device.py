"""`gputune device` against nvidia-smi and PyTorch."""

from __future__ import annotations

import json
from typing import Any, Iterator

from . import machine, nvidia_smi
from .context import Context, near
from .results import Report


def values(content: Any, name: str) -> Iterator[Any]:
    """Every value of this name in a JSON document, outermost first."""
    if isinstance(content, dict):
        if name in content:
            yield content[name]
        for inner in content.values():
            yield from values(inner, name)
    elif isinstance(content, list):
        for inner in content:
            yield from values(inner, name)


def first(content: Any, *names: str) -> Any:
    """The first value that has one of these names."""
    return next((value for name in names for value in values(content, name)), None)


def device(context: Context, report: Report) -> None:
    """The same GPU by all three."""
    done = context.gputune("device", "--json", limit=30)
    report.judge("exit code", "0", f"{done.ended}", done.code == 0)
    try:
        content = json.loads(done.stdout)
    except ValueError:
        report.judge("--json", "a JSON document", done.last_line(), False)
        return
    report.number(device=content)
    rows, torch = nvidia_smi.query("uuid,name,memory.total"), machine.torch_facts()
    uuids = [str(uuid) for uuid in values(content, "uuid")]
    report.judge("UUIDs", f"{rows[0][0]} (nvidia-smi)", ", ".join(uuids) or "none", rows[0][0] in uuids)
    gpu = next((gpu for gpu in objects(content) if gpu.get("uuid") == rows[0][0]), {})
    report.judge("name", rows[0][1], str(gpu.get("name")), gpu.get("name") == rows[0][1])
    memory = gpu.get("memory_bytes")
    total = float(rows[0][2]) * 2**20
    report.judge(
        "memory",
        f"{total / 2**30:.1f} GiB ± 3 % (nvidia-smi)",
        "absent" if memory is None else f"{memory / 2**30:.1f} GiB",
        memory is not None and near(float(memory), total, 0.03),
    )
    count = gpu.get("multiprocessors")
    report.judge(
        "multiprocessors",
        f"{torch.get('multiprocessors')} (PyTorch)",
        str(count),
        count == torch.get("multiprocessors"),
    )
    text = context.gputune("device", limit=30)
    lines = text.stdout.splitlines()
    report.judge(
        "on a terminal", "one screen, at most 60 lines", f"{len(lines)} lines", text.code == 0 and 0 < len(lines) <= 60
    )


def objects(content: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON document."""
    if isinstance(content, dict):
        yield content
    for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else []:
        yield from objects(inner)
