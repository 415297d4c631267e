"""Builds and loads the extension that gives "cuda" tensors: `tensors.cpp`."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Optional

_SOURCE = Path(__file__).with_name("tensors.cpp")
_LIMIT_SECONDS = 600

_kept: list[Any] = []


def missing() -> Optional[str]:
    """Why there can be no such tensors here; nothing where there can."""
    import torch

    if torch.version.cuda is None or torch.version.hip is not None:
        return "the stand-in needs a PyTorch that was built with CUDA"
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 10):
        return "the stand-in's extension is written for torch 2.10 and later"
    if torch._C._cuda_getDeviceCount() > 0 and "CARD_LOG" not in os.environ:
        return "there is a real device"
    if not library(torch).exists() and _compiler() is None:
        return "the stand-in's extension needs a C++ compiler (g++ or what CXX names)"
    return None


def _compiler() -> Optional[str]:
    return shutil.which(os.environ.get("CXX", "g++"))


def library(torch: Any) -> Path:
    """Where the extension for this torch is, or is to be."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or _SOURCE.parents[3] / "target")
    digest = hashlib.sha256(_SOURCE.read_bytes() + torch.__version__.encode() + sys.version.encode()).hexdigest()[:16]
    return target / "card" / f"tensors-{digest}.so"


def build() -> Path:
    """Compiles the extension, unless it is there: 20 seconds of a core."""
    import torch

    built = library(torch)
    if built.exists():
        return built
    compiler = _compiler()
    if compiler is None:
        raise RuntimeError("no C++ compiler")
    built.parent.mkdir(parents=True, exist_ok=True)
    home = Path(torch.__file__).parent
    handle, made = tempfile.mkstemp(suffix=".so", dir=built.parent)
    os.close(handle)
    command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-w", f"-I{home}/include"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", str(_SOURCE), "-o", made]
    command += [f"-L{home}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{home}/lib"]
    try:
        subprocess.run(command, check=True, timeout=_LIMIT_SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        os.replace(made, built)
    finally:
        Path(made).unlink(missing_ok=True)
    return built


def install(wait: Callable[[], None]) -> None:
    """Puts the device in place, in a torch that can have it; `wait` is called where the host needs a number of it."""
    import torch

    if torch.version.cuda is None or _kept:
        return
    loaded = ctypes.PyDLL(str(build()))
    callback = ctypes.CFUNCTYPE(None)(wait)
    _kept.extend((loaded, callback))
    torch._C._set_cudnn_enabled(False)  # its convolutions ask for the library before they ask for a kernel
    loaded.gputune_card_install(callback)
