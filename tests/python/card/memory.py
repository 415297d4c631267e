"""The numbers of a device's caching allocator. Only `torch.cuda.caching_allocator_alloc` takes memory, tensors do not.

It follows `c10/cuda/CUDACachingAllocator.cpp`. Freed memory stays in its segment until `empty_cache`, which waits for the
device as cudaFree does. An allocation that does not fit empties the cache and is tried again (`num_alloc_retries`); if it
still does not fit, it is an error (`num_ooms`). A reset sets each peak to the current number, so the new peak of reserved
memory includes the cache.
"""

from __future__ import annotations

import itertools
from typing import Any, Optional

from card import record, streams

GIB = 1 << 30
TOTAL = 80 * GIB
#: Memory of the driver's context and libraries, outside the allocator.
CONTEXT = GIB
#: Sizes are rounded up to a multiple of this number of bytes.
_UNIT = 2 << 20
_pointers = itertools.count(1 << 40)
_KINDS = ("allocated", "active", "reserved", "inactive_split")


class _Segment:
    def __init__(self, size: int) -> None:
        self.size = size
        self.blocks: dict[int, int] = {}

    @property
    def free(self) -> int:
        return self.size - sum(self.blocks.values())


class _Allocator:
    """The allocator of one device. From the start it has 1 GiB in use, as if by a model."""

    def __init__(self) -> None:
        self.fraction = 1.0
        self._segments: list[_Segment] = []
        self._counts = {"num_alloc_retries": 0, "num_ooms": 0}
        self._peaks = dict.fromkeys(_KINDS, 0)
        self.alloc(GIB)

    def _current(self) -> dict[str, int]:
        used = sum(segment.size - segment.free for segment in self._segments)
        reserved = sum(segment.size for segment in self._segments)
        split = sum(segment.free for segment in self._segments if segment.blocks)
        return {"allocated": used, "active": used, "reserved": reserved, "inactive_split": split}

    def alloc(self, size: int) -> int:
        size = -(-size // _UNIT) * _UNIT
        segment = self._fitting(size) or self._added(size)
        if segment is None:
            self.empty()
            self._counts["num_alloc_retries"] += 1
            segment = self._fitting(size) or self._added(size)
        if segment is None:
            import torch

            self._counts["num_ooms"] += 1
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size / GIB:.2f} GiB.")
        pointer = next(_pointers)
        segment.blocks[pointer] = size
        self._see()
        return pointer

    def _fitting(self, size: int) -> Optional[_Segment]:
        return min((s for s in self._segments if s.free >= size), key=lambda segment: segment.free, default=None)

    def _added(self, size: int) -> Optional[_Segment]:
        if self._current()["reserved"] + size > min(self.fraction * TOTAL, TOTAL - CONTEXT):
            return None
        self._segments.append(_Segment(size))
        return self._segments[-1]

    def _see(self) -> None:
        for kind, value in self._current().items():
            self._peaks[kind] = max(self._peaks[kind], value)

    def delete(self, pointer: int) -> None:
        for segment in self._segments:
            segment.blocks.pop(pointer, None)
        self._see()

    def empty(self) -> None:
        self._segments = [segment for segment in self._segments if segment.blocks]

    def reset_peaks(self) -> None:
        self._peaks = self._current()

    def described(self, device: int) -> list[dict[str, Any]]:
        """The segments as in `torch.cuda.memory._snapshot`."""
        return [
            {
                "device": device,
                "total_size": segment.size,
                "allocated_size": segment.size - segment.free,
                "blocks": [{"size": size, "state": "active_allocated"} for size in segment.blocks.values()],
            }
            for segment in self._segments
        ]

    def stats(self) -> dict[str, int]:
        current = self._current()
        values = {f"{kind}_bytes.all.current": current[kind] for kind in _KINDS}
        return {**values, **{f"{kind}_bytes.all.peak": self._peaks[kind] for kind in _KINDS}, **self._counts}


_allocators: dict[int, _Allocator] = {}


def _of(device: Any = None) -> _Allocator:
    """The allocator of a device; only the first has memory in use from the start."""
    number = getattr(device, "index", device) or 0
    if number not in _allocators:
        _allocators[number] = _Allocator()
        if number > 0:
            _allocators[number]._segments.clear()
            _allocators[number].reset_peaks()
    return _allocators[number]


def memory_stats(device: Any = None) -> dict[str, int]:
    return _of(device).stats()


def snapshot(device: Any = None, **_: Any) -> dict[str, Any]:
    segments = [segment for number, allocator in _allocators.items() for segment in allocator.described(number)]
    return {"segments": segments, "device_traces": []}


def mem_get_info(device: Any = None) -> tuple[int, int]:
    return TOTAL - CONTEXT - _of(device).stats()["reserved_bytes.all.current"], TOTAL


def reset_peak_memory_stats(device: Any = None) -> None:
    record.write("memory", "reset_peak_memory_stats")
    _of(device).reset_peaks()


def empty_cache() -> None:
    record.write("memory", "empty_cache")
    streams.wait_until(max(streams.default_stream().done, streams.current_stream().done), "empty_cache")
    for allocator in _allocators.values():
        allocator.empty()


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    return _of(device).alloc(size)


def caching_allocator_delete(pointer: int) -> None:
    for allocator in _allocators.values():
        allocator.delete(pointer)


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    _of(device).fraction = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    return _of(device).fraction


def statistic(name: str) -> Any:
    """Returns a function that reads one number of the statistics, such as `max_memory_allocated`."""
    return lambda device=None: memory_stats(device)[name]
