"""Reports the memory of the device's allocator. On a CPU it reports nothing: gputune sees the processes' memory.

Compilers and autotuners fill the allocator's cache in the first steps. After a reset, the peak of reserved memory
begins at the size of the cache. So the hook empties the cache and resets the peaks once, after the first steps with the
same settings. It does not reset them more often, as each reset also changes the peaks that the script reads.
"""

from __future__ import annotations

import ctypes
import gc
import resource
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Iterator

import torch

from gputune import _client
from gputune._client import rank_and_ranks
from gputune._hook.devices import is_in_use, module_of
from gputune._hook.facts import Facts
from gputune._hook.memory_snapshot import MemorySnapshot
from gputune._hook.patching import Function, replace
from gputune._hook.session import Session

_NEEDED = ("device_count", "memory_stats", "mem_get_info", "reset_peak_memory_stats", "empty_cache")

#: Getter and setter of the share of a device that this process may reserve. Older versions of torch have no getter.
_GET_SHARE, _SET_SHARE = "get_per_process_memory_fraction", "set_per_process_memory_fraction"


@dataclass
class _Reported:
    """The state of one device at its last report."""

    retries: int = 0
    """Retries with earlier settings, which do not count."""
    failures: int = 0
    """Failed allocations up to the last report of all numbers."""
    failures_told: int = 0
    """Failed allocations that were reported ahead of such a report."""
    goes_on: bool = False
    """True if the next peaks also cover the time before the last report, which did not reset them."""
    share: float = 1.0
    """The share of the device that the script may reserve. Used only if torch has no getter."""


class Memory:
    """Reports the peaks for each device that this process uses."""

    def __init__(self, session: Session, facts: Facts) -> None:
        self._session = session
        self._facts = facts
        self._module: Any = None
        self.snapshot = MemorySnapshot()
        self._is_anew = True  # warm-up under the current settings has not ended
        self.lacks = 0
        """How often the script ran out of memory before the first step."""
        self._reported: defaultdict[int, _Reported] = defaultdict(_Reported)

    def install(self) -> None:
        if hasattr(torch.cuda, _SET_SHARE) and not hasattr(torch.cuda, _GET_SHARE):
            replace(torch.cuda, _SET_SHARE, self._around_set_share)

    def begin(self, device: torch.device) -> None:
        """Starts reporting for the training device."""
        module = module_of(device)
        self._module = module if all(hasattr(module, name) for name in _NEEDED) else None
        _client.hook_reports_memory = self._module is not None

    def report(self) -> None:
        fullest: Any = None
        for device, stats in self._devices():
            held = stats["reserved_bytes.all.current"]
            free, total = self._module.mem_get_info(device)
            other = max(total - free - held, 0)
            reported = self._reported[device]
            self._session.send(
                "memory",
                device=device,
                goes_on=reported.goes_on,
                allocated=stats["allocated_bytes.all.peak"],
                reserved=stats["reserved_bytes.all.peak"],
                in_use=stats["allocated_bytes.all.current"],
                other=other,
                capacity=min(total, int(self._share(device) * total) + other),
                retries=_retries(stats) - reported.retries,
                failures=stats.get("num_ooms", 0) - reported.failures,
            )
            reported.goes_on = True
            reported.failures = stats.get("num_ooms", 0)
            if fullest is None or fullest["reserved_bytes.all.peak"] < stats["reserved_bytes.all.peak"]:
                fullest = stats
        if fullest is not None and rank_and_ranks()[0] == 0:
            say = self._facts.say
            say("memory.allocated", fullest.get("allocated_bytes.all.peak"))
            say("memory.active", fullest.get("active_bytes.all.peak"))
            say("memory.reserved", fullest.get("reserved_bytes.all.peak"))
            say("memory.inactive_split", fullest.get("inactive_split_bytes.all.peak"))
            reserved = fullest["reserved_bytes.all.peak"]
            say("memory.fragmentation", (reserved - fullest["allocated_bytes.all.peak"]) / reserved)

    def peak_bytes(self) -> int:
        """The most memory that was in use on a device since warm-up, including memory outside of torch.

        On a CPU it is the largest resident size of this process (getrusage(2)).
        """
        if self._module is None:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        peaks = []
        for device, stats in self._devices():
            free, total = self._module.mem_get_info(device)
            other = max(total - free - stats["reserved_bytes.all.current"], 0)
            peaks.append(stats["reserved_bytes.all.peak"] + other)
        return max(peaks, default=0)

    def report_failures(self) -> bool:
        """Reports allocations that failed since the last report, each once. Returns true if an allocation failed.

        The next report of all numbers counts them again, because gputune looks only at the last report of a device.
        """
        module = self._module or (torch.cuda if is_in_use("cuda") else None)
        has_failed = False
        try:
            for device in range(module.device_count() if hasattr(module, "memory_stats") else 0):
                failures, reported = module.memory_stats(device).get("num_ooms", 0), self._reported[device]
                has_failed = has_failed or failures > reported.failures
                told = max(reported.failures, reported.failures_told)
                if failures > told:
                    reported.failures_told = failures
                    self._session.send("memory", device=device, failures=failures - told)
        except RuntimeError:  # the device has failed
            pass
        return has_failed

    @property
    def is_in_warm_up(self) -> bool:
        """True if the cache was not emptied yet under the current settings."""
        return self._is_anew and self._module is not None

    def empty_cache(self) -> None:
        """Frees the cache. Waits for the device."""
        self._module.empty_cache()

    def end_warm_up(self) -> None:
        """Reports the peaks of warm-up, and resets them."""
        self.report()
        self._is_anew = False
        self._reset()

    def begin_anew(self) -> None:
        """Frees unused memory, and resets the peaks and retries, before steps with other settings.

        The script may still hold the old batch, which is why warm-up ends with another reset.
        """
        gc.collect()
        self.snapshot.begin_anew()
        if self._module is None:
            _trim()
            return
        self._is_anew = True
        self._module.empty_cache()
        for device, stats in self._devices():
            self._reported[device].retries = _retries(stats)
            self._reported[device].failures = stats.get("num_ooms", 0)
        self._reset()

    def _devices(self) -> Iterator[tuple[int, Any]]:
        """The devices in use, with the numbers of their allocators."""
        for device in range(0 if self._module is None else self._module.device_count()):
            stats = self._module.memory_stats(device)
            if stats.get("reserved_bytes.all.current", 0) > 0:
                yield device, stats

    def _reset(self) -> None:
        for device, _ in self._devices():
            self._module.reset_peak_memory_stats(device)
            self._reported[device].goes_on = False

    def _share(self, device: int) -> float:
        share = getattr(self._module, _GET_SHARE, None)
        return self._reported[device].share if share is None else float(share(device))

    def _around_set_share(self, original: Function) -> Function:
        def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
            original(fraction, device)
            index = device if isinstance(device, int) or device is None else torch.device(device).index
            self._reported[torch.cuda.current_device() if index is None else index].share = fraction

        return set_per_process_memory_fraction


def _retries(stats: Any) -> int:
    """Retries plus failed allocations, even if the script caught the errors. Both show that the config does not fit."""
    return int(stats.get("num_alloc_retries", 0) + stats.get("num_ooms", 0))


def _trim() -> None:
    """Makes the C library return free memory to the system (malloc_trim(3)), if it can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass
