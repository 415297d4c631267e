"""The functions of `torch.cuda` for a device that is not there.

As in CUDA, the first question of a process decides which devices it sees (CUDA_VISIBLE_DEVICES at that time), and from then
on its forked children cannot use any.
"""

from __future__ import annotations

import os
import traceback
from types import SimpleNamespace
from typing import Any, Optional

from card import memory, record, streams, tensors

#: How many devices the machine has, from the environment.
DEVICES = "CARD_DEVICES"
#: Its compute capability, from the environment.
CAPABILITY = "CARD_CAPABILITY"

_FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"
)


class _Driver:
    """What a process knows of CUDA."""

    def __init__(self) -> None:
        self.visible: Optional[int] = None  # devices, from the first question on
        self.is_initialized = False
        self.is_child = False  # of a process that had asked

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
    """`torch.cuda._lazy_init`, which PyTorch calls where a device is used."""
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
        except Exception:  # what it asks of the device is not there to be asked
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
    """A function that needs the device."""

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
    """As `torch.cuda.device`."""

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
    """Puts the functions into the module `torch.cuda`, which has just been loaded."""
    for name, function in _FUNCTIONS.items():
        setattr(cuda, name, function)
    cuda.memory._snapshot = _used("_snapshot", memory.snapshot)
    random = cuda.random
    random.get_rng_state = cuda.get_rng_state = _rng_state
    random.set_rng_state = cuda.set_rng_state = _nothing
    os.register_at_fork(after_in_child=_driver.forked)


def install_accelerator(accelerator: Any) -> None:
    """The same questions by their newer names (torch 2.6)."""
    import torch

    def current(check_available: bool = False) -> Any:
        return torch.device("cuda") if _driver.ask("accelerator.current_accelerator") > 0 else None

    accelerator.is_available = _asked("accelerator.is_available", lambda: _driver.ask("is_available") > 0)
    accelerator.device_count = device_count
    accelerator.current_accelerator = current
    # Dynamo knows functions by their identity, so these are others than those of torch.cuda.
    accelerator.current_stream = lambda device=None: streams.current_stream(device)
    accelerator.synchronize = lambda device=None: streams.synchronize(device)
    accelerator.set_device_index = accelerator.set_device_idx = _used("accelerator.set_device_index", None)
    accelerator.current_device_index = accelerator.current_device_idx = _used("accelerator.current_device_index", 0)


def install_pinning(torch: Any) -> None:
    """Pinned memory is ordinary memory that says so."""
    pinned: set[int] = set()

    def pin_memory(tensor: Any, device: Any = None) -> Any:
        lazy_init()
        copied = tensor.clone()
        pinned.add(copied.data_ptr())
        return copied

    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = _asked("is_pinned", lambda tensor, device=None: tensor.data_ptr() in pinned)


def _rng_state(device: Any = None) -> Any:
    import torch

    _driver.ask("get_rng_state")
    lazy_init()
    return torch.random.get_rng_state()
