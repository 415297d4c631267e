"""The list of checks, call by call, in the order in which they run: what takes little and tells much comes first."""

from __future__ import annotations

from functools import partial
from typing import Callable

from . import bench, device, example, hook, memory, meters, preflight, raw, searches, sick, starts, suites
from .context import Check, Context
from .results import Report

Run = Callable[[Context, Report], None]

#: The longest time of a check. Searches and comparisons run many probes and take longer.
LONGEST_SECONDS = 30
#: A search of four configs, each of which may be a process of its own.
START_SECONDS = 60
#: All classes of the hook's tests, on several cores.
TESTS_SECONDS = 100
#: The search that has a tiny space, for a dry run.
TINY = "images"


def _short(name: str, about: str, run: Run, expected: int, torch: bool = True, dry: bool = False) -> Check:
    return Check(name, about, run, LONGEST_SECONDS, needs_torch=torch, least_seconds=expected, runs_dry=dry)


def _meters(share: float, name: str) -> Check:
    about = f"a probe of a load that is busy {share:.0%} of the time, against nvidia-smi"
    return _short(name, about, partial(meters.against_nvidia_smi, busy=share), 16)


def _start(name: str) -> Check:
    about = f"four configs, each probe {name}" + (", and all compared" if name == "fresh" else "")
    return Check(f"search-{name}", about, partial(starts.search, start=name), START_SECONDS, least_seconds=25,
                 expected_seconds=50, runs_dry=True)  # fmt: skip


def _search(name: str, about: str) -> Check:
    return Check(name, about, partial(searches.search, name=name), 170, least_seconds=60, expected_seconds=165,
                 runs_dry=name == TINY)  # fmt: skip


def _grid(name: str) -> Check:
    about = f"up to {searches.GRID_CONFIGS} configs of the same space, as a replay table; a later call goes on"
    return Check(f"{name}-grid", about, partial(searches.grid, name=name), 110, least_seconds=30, expected_seconds=105)


#: What all else rests on first, then whether the hook is right on a GPU. Expected times are those of an H100.
FIRST = [
    Check("preflight", "driver, compiler, /dev/shm, GPM, processes, `gputune device`", preflight.preflight, 20,
          needs_torch=False, least_seconds=15, runs_dry=True),
    Check("facts-nvml", "each NVML call: return code, latency, value; `nvidia-smi -q`", raw.nvml, 20, needs_torch=False,
          least_seconds=4, runs_dry=True),
    Check("facts-cuda", "memory by driver and allocator; latency of events and launches", raw.cuda, 30, least_seconds=10,
          runs_dry=True),
    _meters(1.0, "meters"),
    _short("ceilings", "`gputune device --bench`", bench.bench, 25, torch=False),
    _short("ceilings-torch", "its numbers against PyTorch's", bench.compare, 20),
    _short("rust-example", "examples/cuda_step.rs", example.rust, 18, torch=False, dry=True),
    _short("oom", "out of memory found and classified", memory.out_of_memory, 20),
    _short("sigkill", "memory and processes after SIGKILL of a step",
           partial(memory.after_sigkill, victim="step"), 8),
    _short("sigkill-gputune", "the same of gputune itself", partial(memory.after_sigkill, victim="gputune"), 8),
    *map(_start, starts.STARTS),
    *hook.cases(),
]  # fmt: skip

#: Diagnoses, the cost of observation, energy, and the hook's tests.
SECOND = [
    *(_short(f"sick-{name}", f"`gputune diagnose` of {about}", partial(sick.sick, name=name), 26, dry=True)
      for name, about in sick.ABOUT.items()),
    _meters(0.5, "meters-half"),
    *hook.costs(),
    _short("device", "`gputune device` against nvidia-smi and PyTorch", device.device, 15),
    _short("energy", "the energy counter's period, and a probe's energy", meters.energy, 25),
    _short("window", "one mean over a window against ticks of a second", meters.window_mean, 28),
    _short("host", "the host meter beside the GPU's", meters.host, 20),
    Check("gpm", "GPM with and without root", meters.gpm, 60, least_seconds=45),
    Check("observer", "what gputune costs: throughput and processor time", hook.observer, 130, least_seconds=105),
    Check("hook-tests", "the hook's own tests, several classes at a time", suites.python, TESTS_SECONDS,
          least_seconds=20, expected_seconds=100, runs_dry=True),
]  # fmt: skip

#: Two searches to their end, beside what the grid of their space has.
THIRD = [
    _search("gpt", "a search over a small GPT"),
    _grid("gpt"),
    _search("images", "a search over an image pipeline with decoding"),
    _grid("images"),
]

CHECKS = [*FIRST, *SECOND, *THIRD]


def named(name: str) -> Check:
    return next(check for check in CHECKS if check.name == name)
