"""What the machine has, asked once at the start."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Optional

from . import nvidia_smi, process

TORCH = """
import json, torch
facts = {"torch": torch.__version__, "torch_cuda": torch.version.cuda, "torch_sees_gpu": torch.cuda.is_available()}
if facts["torch_sees_gpu"]:
    properties = torch.cuda.get_device_properties(0)
    facts.update(name=properties.name, memory_bytes=properties.total_memory)
    facts.update(multiprocessors=properties.multi_processor_count)
    facts.update(compute_capability=[properties.major, properties.minor])
print(json.dumps(facts), flush=True)
"""
# Whether tests/python has a stand-in for a device here, which is built where it can be: 20 seconds of a core, once.
CARD = """
import sys
sys.path.insert(0, sys.argv[1])
try:
    from card import START, tensors
    why = tensors.missing()
    if why is None:
        tensors.build()
        facts["card"] = START
except Exception as error:
    why = f"{type(error).__name__}: {error}"
if why is not None:
    facts["no_card"] = why
print(json.dumps(facts), flush=True)
"""
PYTHON_TESTS = Path(__file__).resolve().parents[2] / "tests" / "python"


# Results belong together where all these are the same.
IDENTITY = ("binary_sha256", "uuid", "driver")


def facts(binary: str, limit: float = 120, with_card: bool = False) -> dict[str, Any]:
    """The machine and the programs of the results. A fact that is not found in time is absent."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
    found["gputune"] = output([binary, "--version"], 20)
    found["binary_sha256"] = sha256(binary)
    found["missing_for_compile"] = missing_for_compile()
    found["shared_memory_bytes"] = shared_memory_bytes()
    found["sandbox"] = sandbox()
    found["gpus"] = len(nvidia_smi.query("uuid"))
    if nvidia_smi.use_one_gpu():
        rows = nvidia_smi.query("name,uuid,driver_version,memory.total")
        if rows and len(rows[0]) == 4:
            found.update(zip(("gpu", "uuid", "driver", "memory_total_mib"), rows[0]))
    found.update(torch_facts(limit, with_card))
    return found


def missing_for_compile() -> str:
    """What Triton needs to build the launchers of its kernels, and is not there; nothing where all is."""
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    compilers = [os.environ.get("CC", ""), "gcc", "clang"]
    missing = [] if any(shutil.which(name) for name in compilers if name) else ["a C compiler (gcc, clang or $CC)"]
    if not headers.exists():
        missing.append(f"Python's headers ({headers})")
    return " and ".join(missing)


def sandbox(version: Path = Path("/proc/version")) -> str:
    """The name of the sandbox that this runs in; empty if none is known. A sandbox may hide meters of the GPU.

    gVisor shows a kernel of this date (its pkg/sentry/syscalls/linux/linux64.go), and names itself in its log."""
    try:
        if "#1 SMP Sun Jan 10 15:06:54 PST 2016" in version.read_text():
            return "gVisor"
    except OSError:
        pass
    return "gVisor" if "gVisor" in output(["dmesg"], 5) else ""


def shared_memory_bytes() -> Optional[int]:
    """Where data workers hand over batches; containers often have 64 MB of it."""
    try:
        return shutil.disk_usage("/dev/shm").total
    except OSError:
        return None


def identity(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found.get(key) for key in IDENTITY}


def identity_key(found: dict[str, Any]) -> str:
    """The identity as the name of a folder."""
    return hashlib.sha256(json.dumps(identity(found), sort_keys=True).encode()).hexdigest()[:12]


def sha256(binary: str) -> str:
    """Two builds of one version are two programs."""
    digest = hashlib.sha256()
    with open(binary, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()


def torch_facts(limit: float = 120, with_card: bool = False) -> dict[str, Any]:
    """What PyTorch tells, and the stand-in for a device where it is asked for."""
    if with_card:
        done = process.run([sys.executable, "-c", TORCH + CARD, str(PYTHON_TESTS)], limit, grace=1)
        printed, late = done.stdout, {"no_card": "it was not built in time"} if done.code is None else {}
    else:
        printed, late = output([sys.executable, "-c", TORCH], limit), {}
    try:
        answer = json.loads(printed.splitlines()[-1])
        return {**late, **answer} if isinstance(answer, dict) else {}
    except (ValueError, IndexError):
        return {}


def output(command: list[str], limit: float) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
