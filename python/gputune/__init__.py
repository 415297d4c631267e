"""Connects a training script to gputune: the script reads its settings here and reports each step.

    import gputune

    config = gputune.config(batch_size=32, workers=0)  # a probe may override these values
    for batch in load(config["batch_size"], config["workers"]):
        loss = train(batch)
        gputune.step(samples=len(batch), loss=loss)

Outside a probe `config` returns the script's own values, and `step`, `phase`, `memory` and `done` do nothing: they
check no argument and import nothing. Inside a probe a wrong argument raises `TypeError` or `ValueError`. A lost
connection to gputune is no error.

`gputune.tune("train.py")` and `gputune.search("gputune.toml")` find the fastest settings, and `gputune.load` reads the
result of a search.

In a distributed job every rank may report. Ranks other than 0 report only their memory and losses that are not finite;
steps and phases count on rank 0 only.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsFloat

from . import _client

if TYPE_CHECKING:
    from ._program import GputuneError
    from ._search import search, tune
    from ._study import Interval, Study, WholeRun, load
else:  # imported at their first use, as training scripts do not need them

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = {"GputuneError": "_program", "search": "_search", "tune": "_search"}.get(name, "_study")
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)


__all__ = ["config", "done", "is_probe", "memory", "phase", "step"]
__all__ += ["GputuneError", "Interval", "Study", "WholeRun", "load", "search", "tune"]
__version__ = "0.1.0"

_PHASES = {"data": "data_wait", "h2d": "host_to_device"}

#: Number of first steps whose loss is always reported. gputune compares these losses to judge settings that change
#: numerics.
_FIRST_LOSSES = 16
#: Seconds between two reads of device values: waiting for the device at every step would slow training down.
_LOOK_TIME = 0.5

#: Number of steps after which the peaks of CUDA memory are reset, once. Each reset also changes the peaks that the
#: script itself reads.
_WARM_UP_STEPS = 3

_steps = 0
_looked_at = -math.inf
_goes_on = False  # true if the next peaks also cover the time before the last report, which did not reset them
_is_reset = False  # true once the peaks were reset
_nothing: AbstractContextManager[None] = nullcontext()


def config(**defaults: Any) -> dict[str, Any]:
    """Returns the settings to train with: the probe's settings override `defaults`.

    Outside a probe the environment variable `GPUTUNE_CONFIG` (a JSON object), if set by hand, overrides `defaults`.
    In a probe an inactive parameter has its value from `defaults`, or is absent.
    """
    reporter = _client.Reporter.current()
    tried = _client.config_of_environment() if reporter is None else reporter.probe.get("config") or {}
    return {**defaults, **tried}


def is_probe() -> bool:
    """Returns true if gputune runs this process as a probe. The script may then skip evaluation and checkpoints."""
    return _client.Reporter.current() is not None


def step(samples: SupportsFloat | None = None, loss: SupportsFloat | None = None, **metrics: SupportsFloat) -> None:
    """Reports that a training step ended now.

    `samples` is the number of samples in the step, over all ranks; the default is `samples_per_step` of the spec.
    `metrics` are further numbers, by name.

    Reading a tensor waits for the device. So a loss or metric that is not a plain number is read in the first 16 steps
    and then every half second. CUDA memory is reported every half second, as by `memory()`.

    Ends the process with exit code 0 (`SystemExit`) once gputune knows enough.
    """
    reporter = _client.Reporter.current()
    if reporter is None:
        return
    global _steps, _looked_at
    _client.user_steps = True
    fields: dict[str, Any] = {}
    if samples is not None:
        fields["samples"] = _samples(samples)
    if _client.handed_out is not None:
        fields["handed_out"], _client.handed_out = _client.handed_out, 0.0
    if _steps == 0:
        reporter.claim()
    _steps += 1
    is_look = time.monotonic() - _looked_at >= _LOOK_TIME
    if loss is not None and (is_look or _steps <= _FIRST_LOSSES or _is_plain(loss)):
        fields["loss"] = _number("loss", loss)
    seen = {name: value for name, value in metrics.items() if is_look or _steps <= _FIRST_LOSSES or _is_plain(value)}
    if seen:
        fields["metrics"] = {name: _number(name, value) for name, value in seen.items()}
    if is_look:
        _looked_at = time.monotonic()
        memory()
    reporter.send("step", time=time.monotonic(), **fields)
    if reporter.is_stopped():
        reporter.end_run()


def phase(name: str) -> AbstractContextManager[None]:
    """Times a part of the current step: `with gputune.phase("data"): batch = next(batches)`.

    The report knows `data` (or `data_wait`), `h2d` (or `host_to_device`), `forward`, `backward` and `optimizer`; other
    names are kept unchanged. The time is wall time: it excludes work that a device does later.
    """
    reporter = _client.Reporter.current()
    return _nothing if reporter is None else _Phase(reporter, name)


class _Phase(AbstractContextManager[None]):
    def __init__(self, reporter: _client.Reporter, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a phase must be a string, not {name!r}")
        self._reporter = reporter
        self._name = _PHASES.get(name, name)
        self._begin = 0.0

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._reporter.send("phase", name=self._name, seconds=time.perf_counter() - self._begin)


def memory(
    allocated: int | None = None,
    reserved: int | None = None,
    other: int | None = None,
    capacity: int | None = None,
    retries: int | None = None,
) -> None:
    """Reports device memory, in bytes: peaks since the last report, use by other processes, and the capacity.

    Without arguments it reads the counters of PyTorch's CUDA allocator for the current device. It empties the cache and
    resets the peaks once, after the third step. It reports nothing if PyTorch is not loaded or has not used CUDA yet,
    or if gputune's hook reports the memory. `retries` is the total number of times that the allocator freed its caches
    and tried again.
    """
    reporter = _client.Reporter.current()
    if reporter is None:
        return
    given = {
        "allocated": allocated,
        "reserved": reserved,
        "other": other,
        "capacity": capacity,
        "retries": retries,
    }
    fields = {name: _count(name, value) for name, value in given.items() if value is not None} or _cuda_memory()
    if fields:
        reporter.send("memory", **fields)


def done() -> None:
    """Reports that training is over, so that gputune need not wait for the rest of the script."""
    reporter = _client.Reporter.current()
    if reporter is not None:
        reporter.send("done")


def _cuda_memory() -> dict[str, int]:
    global _goes_on, _is_reset
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        # A hook that reports the memory also resets the peaks. Two resets would falsify both reports.
        if cuda is None or _client.hook_reports_memory or not cuda.is_initialized():
            return {}
        free, total = cuda.mem_get_info()
        allocated, reserved = cuda.max_memory_allocated(), cuda.max_memory_reserved()
        other, retries = max(total - free - cuda.memory_reserved(), 0), cuda.memory_stats().get("num_alloc_retries", 0)
        share = getattr(cuda, "get_per_process_memory_fraction", None)  # `None` in older versions of torch
        capacity = total if share is None else min(total, int(share() * total) + other)
        device = cuda.current_device()
        goes_on, _goes_on = _goes_on, True
        if _steps > _WARM_UP_STEPS and not _is_reset:
            cuda.empty_cache()  # the peak of reserved memory starts at the size of the cache
            cuda.reset_peak_memory_stats()
            _goes_on, _is_reset = False, True
    except Exception:  # a device without such counters, or in an error state: the script will notice
        return {}
    peaks = {"allocated": allocated, "reserved": reserved, "other": other, "capacity": capacity, "retries": retries}
    return {"device": device, **peaks, "goes_on": goes_on}


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float))


def _number(name: str, value: Any) -> float:
    if isinstance(value, (bool, str, bytes)):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        return float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, not {value!r}") from None


def _samples(value: Any) -> float:
    samples = _number("samples", value)
    if not (math.isfinite(samples) and samples >= 0):
        raise ValueError(f"samples must be a number from 0, not {value!r}")
    return samples


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number of bytes, not {value!r}")
    count = value.__index__()
    if count < 0:
        raise ValueError(f"{name} must not be negative, not {value!r}")
    return int(count)
