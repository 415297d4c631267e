"""Guards that prevent a fork of the zygote: each guard returns the reason, or `None` if it allows the fork.

A child would hang, fail or measure wrongly if its parent has threads, an open device, or other settings.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any, Optional

#: `omp_pause_hard` (OpenMP 5.0, section 3.2.44) ends the threads of the pool.
_PAUSE_HARD = 2
_OPENMP = ("libgomp", "libomp", "libiomp5")

#: Names of the function that returns OpenBLAS's number of threads: in OpenBLAS itself, and in the wheels of numpy and
#: scipy.
_OPENBLAS_THREADS = (
    "openblas_get_num_threads",
    "openblas_get_num_threads64_",
    "scipy_openblas_get_num_threads",
    "scipy_openblas_get_num_threads64_",
)

_DEVICE_FILES = ("/dev/kfd", "/dev/dri", "/dev/accel")
_NVIDIA_FILES = ("/dev/nvidia",)
#: `CUDA_ERROR_NOT_INITIALIZED` (CUDA driver API, `CUresult`).
_NOT_INITIALIZED = 3


class Guards:
    """The guards of a zygote. `task` is the content of its task file (`zygote.py`)."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._modules: list[list[Any]] = task["modules"]
        self._changed: dict[str, str] = task["environment"]
        self._prefixes = tuple(task["load_time"])
        self._own = frozenset(task["own"])

    def against_imports(self, reads: set[str]) -> Optional[str]:
        """The reason why the imports of this process differ from the script's, else `None`."""
        if "tensorflow" in sys.modules:
            return "TensorFlow starts threads when it is imported"
        for name, file, is_installed in self._modules:
            module = sys.modules.get(name)
            if file is not None and module is not None:
                own = getattr(getattr(module, "__spec__", None), "origin", None)
                if own != file:
                    return f"the script imports `{name}` from {file}, which hides another one"
        for name, value in sorted(self._changed.items()):
            is_read = name in reads or name.startswith(self._prefixes)
            if is_read and name not in self._own and os.environ.get(name) != value:
                return f"the script sets {name} itself, which is read when packages are imported"
        return None

    def against_fork(self) -> Optional[str]:
        """The reason why this process cannot be forked, else `None`."""
        return _python_threads() or _device() or _native_threads()


def _python_threads() -> Optional[str]:
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return f"an import started a thread ({others[0]})" if others else None


def _device() -> Optional[str]:
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        is_initialized = getattr(getattr(torch, name, None), "is_initialized", None)
        if is_initialized is not None and is_initialized():
            return "an import has initialised the GPU"
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    if backends:
        return "an import has initialised a back end of JAX"
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if path.startswith(_DEVICE_FILES) or (path.startswith(_NVIDIA_FILES) and _is_cuda_initialized()):
            return f"an import has opened {path}"
    return None


def _is_cuda_initialized() -> bool:
    """True if this process has initialised the CUDA driver, which no child could then use.

    An open NVIDIA file is no proof: NVML also opens /dev/nvidiactl and keeps it open, and then a child can still use
    CUDA (torch/cuda/__init__.py, `_device_count_nvml`).
    """
    for path in _libraries():
        if os.path.basename(path).startswith("libcuda.so"):
            count = _function(path, ("cuDeviceGetCount",))
            if count is None or count(ctypes.byref(ctypes.c_int())) != _NOT_INITIALIZED:
                return True
    return False


def _native_threads() -> Optional[str]:
    """The reason if native threads run, which a forked child lacks. Ends the threads of OpenMP first.

    Threads of OpenBLAS may run, as its `openblas_fork_handler` ends them before a fork.
    """
    if len(os.listdir("/proc/self/task")) == 1:
        return None
    allowed = 0
    for path in _libraries():
        name = os.path.basename(path)
        if name.startswith(_OPENMP):
            pause = _function(path, ("omp_pause_resource_all",))
            if pause is not None:
                pause(_PAUSE_HARD)
        elif "openblas" in name:
            threads = _function(path, _OPENBLAS_THREADS)
            allowed += threads() - 1 if threads is not None else 0
    count = len(os.listdir("/proc/self/task")) - 1
    if count <= allowed:
        return None
    number = count - allowed
    return f"an import started {number} native thread{'s' if number > 1 else ''}"


def _libraries() -> list[str]:
    """The shared libraries of this process (`/proc/PID/maps`, proc(5))."""
    found: dict[str, None] = {}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            path = line.split(None, 5)[5].strip() if line.count(" ") >= 5 and "/" in line else ""
            if ".so" in path and path.startswith("/"):
                found[path] = None
    return list(found)


def _function(path: str, names: tuple[str, ...]) -> Optional[Any]:
    """The first of `names` that the library defines."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for name in names:
        try:
            return getattr(library, name)
        except AttributeError:
            continue
    return None
