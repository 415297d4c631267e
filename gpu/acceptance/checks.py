"""The list of checks, in the order in which they run: what takes little and tells much comes first."""

from __future__ import annotations

from . import bench, device, losses, memory, meters, searches
from .context import Check


def _search(name: str):  # type: ignore[no-untyped-def]
    return lambda context, report: searches.search(context, report, name)


def _grid(name: str):  # type: ignore[no-untyped-def]
    return lambda context, report: searches.grid(context, report, name)


CHECKS = [
    Check("device", "`gputune device` against nvidia-smi and PyTorch", device.device, 60),
    Check("bench", "`gputune device --bench` against PyTorch's products and copies", bench.bench, 150),
    Check("demo", "the demo step's losses on the GPU against the CPU's", losses.demo_step, 120, needs_torch=False),
    Check("meters", "a probe's GPU readings against nvidia-smi", meters.against_nvidia_smi, 90),
    Check("gpm", "GPM with and without root", meters.gpm, 180),
    Check("window", "one mean over a window against ticks of a second", meters.window_mean, 75),
    Check("energy", "the energy counter's period, and a probe's energy", meters.energy, 60),
    Check("host", "the host meter beside the GPU's", meters.host, 45),
    Check("sigkill", "memory and processes after SIGKILL of a step, and of gputune", memory.after_sigkill, 150),
    Check("oom", "out of memory found and classified", memory.out_of_memory, 150),
    Check(
        "observer",
        "what gputune costs: throughput and processor time with and without it",
        meters.observer,
        480,
        least_seconds=150,
    ),
    Check(
        "quickstart", "examples/quickstart.toml finds and uses the GPU", searches.quick_start, 180, needs_torch=False
    ),
    Check("images", "a search over an image pipeline with decoding", _search("images"), 540, least_seconds=120),
    Check("gpt", "a search over a small GPT", _search("gpt"), 540, least_seconds=120),
    Check("images-grid", "every config of the same space, as a replay table", _grid("images"), 36000, least_seconds=60),
    Check("gpt-grid", "every config of the same space, as a replay table", _grid("gpt"), 36000, least_seconds=60),
]


def named(name: str) -> Check:
    return next(check for check in CHECKS if check.name == name)
