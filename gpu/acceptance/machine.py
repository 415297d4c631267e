"""What the machine has, asked once at the start."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from typing import Any

from . import nvidia_smi

TORCH = """
import json, torch
facts = {"torch": torch.__version__, "torch_cuda": torch.version.cuda, "torch_sees_gpu": torch.cuda.is_available()}
if facts["torch_sees_gpu"]:
    properties = torch.cuda.get_device_properties(0)
    facts.update(name=properties.name, memory_bytes=properties.total_memory)
    facts.update(multiprocessors=properties.multi_processor_count)
    facts.update(compute_capability=[properties.major, properties.minor])
print(json.dumps(facts))
"""


def facts(binary: str) -> dict[str, Any]:
    """What results are of; what cannot be found out is absent."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
    found["gputune"] = output([binary, "--version"], 20)
    found.update(torch_facts())
    rows = nvidia_smi.query("name,uuid,driver_version,memory.total")
    if rows and len(rows[0]) == 4:
        found.update(zip(("gpu", "uuid", "driver", "memory_total_mib"), rows[0]))
        found["gpus"] = len(rows)
    return found


def torch_facts() -> dict[str, Any]:
    try:
        answer = json.loads(output([sys.executable, "-c", TORCH], 120).splitlines()[-1])
        return answer if isinstance(answer, dict) else {}
    except (ValueError, IndexError):
        return {}


def output(command: list[str], limit: float) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
