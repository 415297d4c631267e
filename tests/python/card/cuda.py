"""The functions of `torch.cuda` for the stand-in.

As in CUDA, the first call of a process decides which devices it sees: CUDA_VISIBLE_DEVICES at that time. Children that are
forked after this call cannot use a device.
"""

from __future__ import annotations

import os
import traceback
from types import SimpleNamespace
from typing import Any, Optional

from card import memory, record, streams, tensors

#: The environment variable with the number of devices; 1 if it is not set.
DEVICES = "CARD_DEVICES"
#: The environment variable with the compute capability; 9.0 if it is not set.
CAPABILITY = "CARD_CAPABILITY"

_FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"
)


class _Driver:
    """The state of CUDA in this process."""

    def __init__(self) -> None:
        self.visible: Optional[int] = None  # number of devices; `None` before the first call
        self.is_initialized = False
        self.is_child = False  # forked after the first call of the parent

    def ask(self, name: str) -> int:
        record.write("ask", name)
        if self.visible is None:
            self.visible = _visible()
        return 0 if self.is_child else self.visible

    def forked(self) -> None:
        self.is_child = self.is_child or self.visible is not None
        self.is_initialized = False


_driver = _Driver()


def _visible() -> int:
    count = int(os.environ.get(DEVICES, "1"))
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return count
    names = [name.strip() for name in chosen.split(",")]
    return sum(name.isdigit() and int(name) < count or name.startswith("GPU-") for name in names)


def lazy_init() -> None:
    """`torch.cuda._lazy_init`, which PyTorch calls before it uses a device."""
    import torch

    if _driver.is_initialized:
        return
    visible = _driver.ask("_lazy_init")
    if _driver.is_child:
        raise RuntimeError(_FORKED)
    if visible == 0:
        raise RuntimeError("No CUDA GPUs are available")
    _driver.is_initialized = True
    torch.cuda._initialized = True
    tensors.install(streams.wait_for_stream)
    for call, _ in torch.cuda._queued_calls:
        try:
            call()
        except Exception:  # the call needs a function that the stand-in does not have
            traceback.print_exc()


def is_available() -> bool:
    return _driver.ask("is_available") > 0


def device_count() -> int:
    return _driver.ask("device_count")


def _asked(name: str, answer: Any) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        _driver.ask(name)
        return answer(*args, **kwargs) if callable(answer) else answer

    function.__name__ = name
    return function


def _used(name: str, answer: Any) -> Any:
    """A function of `torch.cuda` that initializes the device. It returns `answer`, or the result of `answer`."""

    def function(*args: Any, **kwargs: Any) -> Any:
        _driver.ask(name)
        lazy_init()
        return answer(*args, **kwargs) if callable(answer) else answer

    function.__name__ = name
    return function


def _is_child() -> bool:
    return _driver.is_child


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


def _capability(device: Any = None) -> tuple[int, int]:
    major, minor = os.environ.get(CAPABILITY, "9.0").split(".")
    return int(major), int(minor)


class _Device:
    """Like `torch.cuda.device`, but all work stays on the same device."""

    def __init__(self, device: Any = None) -> None:
        pass

    def __enter__(self) -> None:
        lazy_init()

    def __exit__(self, *args: Any) -> None:
        pass


_PROPERTIES = SimpleNamespace(
    name="stand-in", major=9, minor=0, total_memory=memory.TOTAL, multi_processor_count=100, uuid="stand-in", warp_size=32
)

_OF_MEMORY = (
    *("memory_stats", "mem_get_info", "reset_peak_memory_stats", "empty_cache"),
    *("caching_allocator_alloc", "caching_allocator_delete"),
    *("set_per_process_memory_fraction", "get_per_process_memory_fraction"),
)

_FUNCTIONS: dict[str, Any] = {
    "_lazy_init": lazy_init,
    "init": lazy_init,
    "_is_in_bad_fork": _is_child,
    "is_available": is_available,
    "device_count": device_count,
    "is_bf16_supported": _asked("is_bf16_supported", True),
    "get_device_capability": _used("get_device_capability", _capability),
    "get_device_name": _used("get_device_name", "stand-in"),
    "get_device_properties": _used("get_device_properties", _PROPERTIES),
    "get_arch_list": _asked("get_arch_list", lambda: []),
    "current_device": _used("current_device", 0),
    "set_device": _used("set_device", None),
    **{name: _used(name, getattr(memory, name)) for name in _OF_MEMORY},
    "memory_allocated": _used("memory_allocated", memory.statistic("allocated_bytes.all.current")),
    "memory_reserved": _used("memory_reserved", memory.statistic("reserved_bytes.all.current")),
    "max_memory_allocated": _used("max_memory_allocated", memory.statistic("allocated_bytes.all.peak")),
    "max_memory_reserved": _used("max_memory_reserved", memory.statistic("reserved_bytes.all.peak")),
    "manual_seed": _nothing,
    "manual_seed_all": _nothing,
    "device": _Device,
    "device_of": _Device,
    "Event": streams.Event,
    "Stream": streams.Stream,
    "stream": streams.stream,
    "set_stream": streams.set_stream,
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "is_current_stream_capturing": streams.is_capturing,
    "synchronize": streams.synchronize,
    "_sleep": streams.sleep,
    "CUDAGraph": streams.Graph,
    "graph": streams.graph,
}


def install(cuda: Any) -> None:
    """Replaces the functions of the module `torch.cuda`, which has just been loaded."""
    for name, function in _FUNCTIONS.items():
        setattr(cuda, name, function)
    cuda.memory._snapshot = _used("_snapshot", memory.snapshot)
    random = cuda.random
    random.get_rng_state = cuda.get_rng_state = _rng_state
    random.set_rng_state = cuda.set_rng_state = _nothing
    os.register_at_fork(after_in_child=_driver.forked)


def install_accelerator(accelerator: Any) -> None:
    """Replaces the functions of `torch.accelerator`, the newer names of the same functions (torch 2.6)."""
    import torch

    def current(check_available: bool = False) -> Any:
        return torch.device("cuda") if _driver.ask("accelerator.current_accelerator") > 0 else None

    accelerator.is_available = _asked("accelerator.is_available", lambda: _driver.ask("is_available") > 0)
    accelerator.device_count = device_count
    accelerator.current_accelerator = current
    # Dynamo distinguishes functions by identity, so these must not be the same objects as in torch.cuda.
    accelerator.current_stream = lambda device=None: streams.current_stream(device)
    accelerator.synchronize = lambda device=None: streams.synchronize(device)
    accelerator.set_device_index = accelerator.set_device_idx = _used("accelerator.set_device_index", None)
    accelerator.current_device_index = accelerator.current_device_idx = _used("accelerator.current_device_index", 0)


def install_pinning(torch: Any) -> None:
    """Replaces `pin_memory`, which returns an ordinary copy, and `is_pinned`, which knows the copies.

    A copy is known by the address of its memory, as long as it exists: later tensors may have the same address.
    """
    pinned: dict[int, Any] = {}

    def pin_memory(tensor: Any, device: Any = None) -> Any:
        from torch.multiprocessing.reductions import StorageWeakRef

        lazy_init()
        copied = tensor.clone()
        pinned[copied.data_ptr()] = StorageWeakRef(copied.untyped_storage())
        return copied

    def is_pinned(tensor: Any, device: Any = None) -> bool:
        storage = pinned.get(tensor.data_ptr())
        return storage is not None and not storage.expired()

    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = _asked("is_pinned", is_pinned)


def _rng_state(device: Any = None) -> Any:
    import torch

    _driver.ask("get_rng_state")
    lazy_init()
    return torch.random.get_rng_state()
