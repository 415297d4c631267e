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
    """The reason why this machine cannot have such tensors; `None` if it can."""
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
    """The path of the extension for this version of torch. The file may not exist yet."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or _SOURCE.parents[3] / "target")
    digest = hashlib.sha256(_SOURCE.read_bytes() + torch.__version__.encode() + sys.version.encode()).hexdigest()[:16]
    return target / "card" / f"tensors-{digest}.so"


def build() -> Path:
    """Compiles the extension if it does not exist, which takes about 20 seconds of one core. Returns its path."""
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
    """Installs the device if torch was built with CUDA. It calls `wait` when the host needs a result of the device."""
    import torch

    if torch.version.cuda is None or _kept:
        return
    loaded = ctypes.PyDLL(str(build()))
    callback = ctypes.CFUNCTYPE(None)(wait)
    _kept.extend((loaded, callback))
    torch._C._set_cudnn_enabled(False)  # cuDNN's convolutions need the library, which is not here
    loaded.gputune_card_install(callback)
