"""Streams whose work takes time, and events that complete when the work before them is done."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import Any, Iterator, Optional

from card import record

#: The environment variable with the host's microseconds to record an event. On a real GPU it takes 10, Python's part included.
EVENT_COST = "CARD_EVENT_MICROSECONDS"

#: Seconds of a cycle of `torch.cuda._sleep`.
CYCLE_SECONDS = 1e-9


class Stream:
    """A queue of work that is done in order, concurrently with the work of other streams."""

    _made = 0

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        _need_card()
        Stream._made += 1
        self.stream_id = self.cuda_stream = Stream._made
        self.device = _torch_device(device)
        self.done = 0.0  # when all queued work is done, in seconds of `time.perf_counter`

    def queue(self, seconds: float) -> None:
        self.done = max(self.done, time.perf_counter()) + seconds

    def record_event(self, event: Optional[Event] = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        self.done = max(self.done, event._at or 0.0)

    def wait_stream(self, other: Stream) -> None:
        self.done = max(self.done, other.done)

    def is_capturing(self) -> bool:
        return is_capturing()

    def query(self) -> bool:
        return self.done <= time.perf_counter()

    def synchronize(self) -> None:
        wait_until(self.done, "stream")


class Event:
    """Like `torch.cuda.Event`, with its errors."""

    made = recorded = 0
    _cost = float(os.environ.get(EVENT_COST, "0")) * 1e-6

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any) -> None:
        Event.made += 1
        self._has_time = enable_timing
        self._at: Optional[float] = None

    def record(self, stream: Optional[Stream] = None) -> None:
        Event.recorded += 1
        until = time.perf_counter() + self._cost
        while time.perf_counter() < until:
            pass
        stream = current_stream() if stream is None else stream
        self._at = max(stream.done, time.perf_counter())

    def query(self) -> bool:
        _need_card()
        if is_capturing():
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return self._at is None or self._at <= time.perf_counter()

    def wait(self, stream: Optional[Stream] = None) -> None:
        (current_stream() if stream is None else stream).wait_event(self)

    def synchronize(self) -> None:
        _need_card()
        if is_capturing():
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        wait_until(self._at or 0.0, "event")

    def elapsed_time(self, end: Event) -> float:
        if self._at is None or end._at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        if not (self._has_time and end._has_time):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        return (end._at - self._at) * 1e3


class Graph:
    """Like `torch.cuda.CUDAGraph`: each replay queues as many seconds of work as the capture contained."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._seconds = 0.0

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        _local.captured = self
        self._seconds = 0.0

    def capture_end(self) -> None:
        _local.captured = None

    def replay(self) -> None:
        current_stream().queue(self._seconds)

    def reset(self) -> None:
        self._seconds = 0.0


class graph:
    """Like `torch.cuda.graph`."""

    def __init__(self, cuda_graph: Graph, *args: Any, **kwargs: Any) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *args: Any) -> None:
        self._graph.capture_end()


_local = threading.local()
_default: Optional[Stream] = None


def current_stream(device: Any = None) -> Stream:
    return getattr(_local, "stream", None) or default_stream()


def default_stream(device: Any = None) -> Stream:
    global _default
    _need_card()
    if _default is None:
        _default = Stream()
    return _default


@contextmanager
def stream(wanted: Optional[Stream]) -> Iterator[None]:
    before = getattr(_local, "stream", None)
    _local.stream = wanted or before
    try:
        yield
    finally:
        _local.stream = before


def set_stream(wanted: Stream) -> None:
    _local.stream = wanted


def is_capturing() -> bool:
    return getattr(_local, "captured", None) is not None


def sleep(cycles: int) -> None:
    """Queues work that takes `cycles` on the device. The host does not wait."""
    captured = getattr(_local, "captured", None)
    if captured is not None:
        captured._seconds += cycles * CYCLE_SECONDS
    else:
        current_stream().queue(cycles * CYCLE_SECONDS)


def synchronize(device: Any = None) -> None:
    _need_card()
    wait_until(max(default_stream().done, current_stream().done), "device")


def wait_for_stream() -> None:
    """Waits for the current stream, because the host needs its result."""
    wait_until(current_stream().done, "tensor")


def wait_until(done: float, name: str) -> None:
    left = done - time.perf_counter()
    record.write("wait", name, seconds=max(left, 0.0))
    if left > 0:
        time.sleep(left)


def _need_card() -> None:
    from card import cuda

    cuda.lazy_init()


def _torch_device(device: Any) -> Any:
    import torch

    return torch.device("cuda", 0) if device is None or isinstance(device, int) else torch.device(device)
