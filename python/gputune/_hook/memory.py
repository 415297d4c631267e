"""What the device's allocator reports. On a CPU there is nothing to report: gputune sees the memory of the processes."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import torch

from gputune._hook.devices import module_of
from gputune._hook.session import Session

_NEEDED = ("device_count", "memory_stats", "mem_get_info", "reset_peak_memory_stats")


class Memory:
    """Peaks since the last report, of each device that this process uses."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._module: Any = None
        self._retries: dict[int, int] = {}
        """Of each device, what does not count: it was with other settings."""

    def begin(self, device: torch.device) -> None:
        """The training runs on this device."""
        module = module_of(device)
        self._module = module if all(hasattr(module, name) for name in _NEEDED) else None

    def report(self) -> None:
        module = self._module
        if module is None:
            return
        for device in range(module.device_count()):
            stats = module.memory_stats(device)
            held = stats.get("reserved_bytes.all.current", 0)
            if held == 0:
                continue
            free, total = module.mem_get_info(device)
            self._session.send(
                "memory",
                allocated=stats["allocated_bytes.all.peak"],
                reserved=stats["reserved_bytes.all.peak"],
                other=max(total - free - held, 0),
                capacity=total,
                retries=_retries(stats) - self._retries.get(device, 0),
            )
            module.reset_peak_memory_stats(device)

    def begin_anew(self) -> None:
        """What was needed so far is given back, and no part of the peaks from here on."""
        gc.collect()
        module = self._module
        if module is None:
            _trim()
            return
        if hasattr(module, "empty_cache"):
            module.empty_cache()
        for device in range(module.device_count()):
            stats = module.memory_stats(device)
            self._retries[device] = _retries(stats)
            if stats.get("reserved_bytes.all.current", 0) > 0:
                module.reset_peak_memory_stats(device)


def _retries(stats: Any) -> int:
    """An error that the script caught and went on from means "does not fit" as much as a retry."""
    return int(stats.get("num_alloc_retries", 0) + stats.get("num_ooms", 0))


def _trim() -> None:
    """Has the C library give free memory back to the system (malloc_trim(3)), where it can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass
