"""Reports the memory of the device's allocator. On a CPU it reports nothing: gputune sees the processes' memory."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import torch

from gputune._hook.devices import module_of
from gputune._hook.session import Session

_NEEDED = ("device_count", "memory_stats", "mem_get_info", "reset_peak_memory_stats")


class Memory:
    """Reports the peaks since the last report, for each device that this process uses."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._module: Any = None
        self._retries: dict[int, int] = {}
        """Retries per device that do not count, as they happened with other settings."""

    def begin(self, device: torch.device) -> None:
        """Starts reporting for the training device."""
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
        """Frees unused memory, and resets the peaks and retries, before steps with other settings."""
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
    """Retries plus out-of-memory errors that the script caught: both mean that the config does not fit."""
    return int(stats.get("num_alloc_retries", 0) + stats.get("num_ooms", 0))


def _trim() -> None:
    """Makes the C library return free memory to the system (malloc_trim(3)), if it can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass
