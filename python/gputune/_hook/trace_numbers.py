"""Numbers of a Chrome trace that `torch.profiler` wrote: the longest kernels, the gaps between kernels, and copies.

Kineto names the fields (https://github.com/pytorch/kineto, `libkineto/src/output_json.cpp`). The efficiency follows
its TensorBoard plugin (`tb_plugin/docs/gpu_utilization.md`): the mean over the whole time of a kernel's blocks per
multiprocessor, at most one. It is an estimate, because a kernel does not fill its multiprocessors all the time. Not yet
tested with the trace of a GPU.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Iterable

#: Begin and end in microseconds.
Span = tuple[float, float]

#: Most names to report, and most characters of a name: names of C++ templates may have thousands.
_NAMES = 8
_LONGEST = 160

_KERNELS = ("kernel",)
_COPIES = ("gpu_memcpy",)
_OPERATORS = ("cpu_op",)


def numbers(events: list[dict[str, Any]], steps: Span) -> dict[str, Any]:
    """The facts about the events between the begin and the end of the recorded steps."""
    whole = [event for event in events if event.get("ph") == "X"]
    kernels = _within(whole, _KERNELS, steps)
    if not kernels:
        return {"kind": "operators", "top": _top(_self_times(_within(whole, _OPERATORS, steps)))}
    spans = _merged(_span(kernel) for kernel in kernels)
    copies = _merged(_span(copy) for copy in _within(whole, _COPIES, steps))
    length = steps[1] - steps[0]
    found: dict[str, Any] = {
        "kind": "kernels",
        "top": _top((kernel["name"], kernel["dur"]) for kernel in kernels),
        "idle_share": max(1.0 - _length(spans) / length, 0.0),
    }
    if copies:
        found["copy_overlap"] = _length(_common(spans, copies)) / _length(copies)
    blocks = [(kernel, kernel["args"].get("blocks per SM")) for kernel in kernels if "args" in kernel]
    if any(per_unit is not None for _, per_unit in blocks):
        found["sm_efficiency"] = _efficiency([(_span(kernel), float(per_unit or 0.0)) for kernel, per_unit in blocks]) / length
    occupancies = [(kernel["dur"], kernel.get("args", {}).get("est. achieved occupancy %")) for kernel in kernels]
    known = [(duration, float(share) / 100.0) for duration, share in occupancies if share is not None]
    if known and sum(duration for duration, _ in known) > 0:
        found["occupancy"] = sum(duration * share for duration, share in known) / sum(duration for duration, _ in known)
    return found


def _within(events: list[dict[str, Any]], kinds: tuple[str, ...], steps: Span) -> list[dict[str, Any]]:
    """The events of these kinds that begin in the recorded steps."""
    chosen = (event for event in events if str(event.get("cat", "")).lower() in kinds and "dur" in event)
    return [event for event in chosen if steps[0] <= event["ts"] < steps[1]]


def _span(event: dict[str, Any]) -> Span:
    return event["ts"], event["ts"] + event["dur"]


def _top(times: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """The names with the most time, each with its share of the time of all names."""
    sums: defaultdict[str, float] = defaultdict(float)
    for name, duration in times:
        sums[name] += duration
    total = sum(sums.values()) or 1.0
    longest = sorted(sums.items(), key=lambda item: -item[1])[:_NAMES]
    return [(name[:_LONGEST], round(duration / total, 4)) for name, duration in longest]


def _self_times(events: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Each operator's time without the operators that it calls in the same thread."""
    found: list[tuple[str, float]] = []
    open_events: defaultdict[Any, list[list[Any]]] = defaultdict(list)  # by thread: name, end, own time
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        stack = open_events[event.get("tid")]
        while stack and stack[-1][1] <= event["ts"]:
            found.append((stack[-1][0], stack.pop()[2]))
        if stack:
            stack[-1][2] -= event["dur"]
        stack.append([event["name"], event["ts"] + event["dur"], event["dur"]])
    found += [(name, own) for stack in open_events.values() for name, _, own in stack]
    return [(name, max(own, 0.0)) for name, own in found]


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The time that any span covers."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _length(spans: list[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def _common(first: list[Span], second: list[Span]) -> list[Span]:
    """The time that both lists cover."""
    common, place = [], 0
    for begin, end in first:
        while place < len(second) and second[place][1] <= begin:
            place += 1
        at = place
        while at < len(second) and second[at][0] < end:
            common.append((max(begin, second[at][0]), min(end, second[at][1])))
            at += 1
    return common


def _efficiency(kernels: list[tuple[Span, float]]) -> float:
    """The sum of all microseconds, each weighted by the blocks per multiprocessor of all kernels then, at most one."""
    changes = [(begin, blocks) for (begin, _), blocks in kernels] + [(end, -blocks) for (_, end), blocks in kernels]
    total = now = last = 0.0
    for at, change in sorted(changes):
        total += (at - last) * min(max(now, 0.0), 1.0)
        now, last = now + change, at
    return total
