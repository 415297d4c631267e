"""The same configs by each way to start a probe: live (the default on a GPU), warm and fresh. Rates and memory are compared."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from . import tables
from .context import SPECS, Context
from .hook import NO_TIME
from .results import Report

#: Each way with the mark that its trials have in the journal. The default on a GPU comes first.
STARTS = {"live": "is_live", "warm": "is_forked", "fresh": ""}
#: The largest differences of rates and memory from fresh processes. Fresh processes of a config must agree as closely.
RATE_SHARE, MEMORY_SHARE, MEMORY_BYTES = 0.05, 0.05, 64 << 20
#: What a spec without `start` has. On a GPU such a search must be live.
DEFAULT = "auto"
KEPT = "measured.json"
#: What a trial measured: its config, the way its process started, the process, the rate and the peak of memory.
Measured = dict[str, Any]


def search(context: Context, report: Report, start: str) -> None:
    folder = context.folder(f"starts/{start}")
    source = SPECS / ("tiny-starts.toml" if context.tiny else "starts.toml")
    seconds = max(int(context.left) - 6, 5)
    setting = setting_of(start, context.dry)
    text = source.read_text().replace(f'start = "{DEFAULT}"', f'start = "{setting}"').replace('\ntime = "60s"', f'\ntime = "{seconds}s"')
    spec = folder / "spec.toml"
    spec.write_text(text.replace("[step]\n", f"[step]\ncwd = {json.dumps(str(SPECS))}\n", 1))
    done = context.gputune("search", spec, "--out", folder / "search", "--fresh", "--format", "json")
    trials = tables.read_journal(folder / "search" / "journal.jsonl")
    seen = f"{done.ended}; {len(trials)} trials in {done.seconds:.0f} s"
    outcomes = [trial["outcome"] for trial in trials]
    if context.dry and (done.code is None or (done.code != 0 and set(outcomes) <= {*NO_TIME, "measured"})):
        report.skip("the search", "exit code 0", f"a dry run had no time for it ({seen})")
    else:
        report.judge("the search", "exit code 0", seen, done.code == 0)
    found = measured(trials, start)
    (folder / KEPT).write_text(json.dumps(found))
    report.number(measured=found, seconds=done.seconds, outcomes=outcomes)
    judge_start(context, report, start, by_config(found, start))
    if start == "fresh":
        others = [other for other in STARTS if other != "fresh"]
        # The first process of a live or warm search is a fresh process.
        everything = found + [each for other in others for each in read(context.folder(f"starts/{other}") / KEPT)]
        for other in others:
            compare(context, report, other, everything)


def setting_of(start: str, is_dry: bool) -> str:
    """The setting `start` of the search. Without a GPU the default is not live."""
    return DEFAULT if start == "live" and not is_dry else start


def judge_start(context: Context, report: Report, start: str, found: dict[str, list[Measured]]) -> None:
    """A search that cannot start probes this way falls back to fresh processes, and prints the reason."""
    expected = f"at least one config is measured {start}"
    if setting_of(start, context.dry) == DEFAULT:
        expected += f', with start = "{DEFAULT}"'
    if found or not context.dry:
        report.judge("the way to start", expected, f"{len(found)} configs", bool(found))
    else:
        report.skip("the way to start", expected, f"a dry run on {context.trains_on}: none")


def measured(trials: list[dict[str, Any]], search: str) -> list[Measured]:
    """What each trial of a search measured. A round adds rates of the processes that it compares, and no memory."""
    made = []
    for trial in {trial["trial"]: trial for trial in trials}.values():
        if trial["outcome"] != "measured" or "throughput" not in trial:
            continue
        in_round = trial.get("round")
        made.append(
            {
                "config": json.dumps(trial["config"], sort_keys=True),
                "start": next((name for name, mark in STARTS.items() if mark and trial.get(mark)), "fresh"),
                "process": f"{search} {in_round['process'] if in_round else trial['trial']}",
                "rate": float(trial["throughput"]["value"]),
                "rates": rates_of(trial),
                "memory": None if in_round else trial.get("peak_memory_bytes"),
            }
        )
    return made


def rates_of(trial: dict[str, Any]) -> list[float]:
    """Rates that a trial had at different times: the slices of a round, or the ends of an interval that is too wide."""
    throughput, slices = trial["throughput"], trial.get("round", {}).get("slices")
    ends = [throughput.get("low"), throughput.get("high")]
    if not slices:
        slices = ends if trial.get("is_unstable") and None not in ends else [throughput["value"]]
    return [float(rate) for rate in slices]


def by_config(everything: list[Measured], start: str) -> dict[str, list[Measured]]:
    grouped: dict[str, list[Measured]] = {}
    for each in everything:
        if each["start"] == start:
            grouped.setdefault(each["config"], []).append(each)
    return grouped


def compare(context: Context, report: Report, start: str, everything: list[Measured]) -> None:
    """A row for the rates and a row for the memory: the config that is furthest from the same config in fresh processes."""
    found, fresh = by_config(everything, start), by_config(everything, "fresh")
    both = sorted(set(found) & set(fresh))
    unclear = {config: reason for config in both if (reason := why_unclear(fresh[config]))}
    steady = {config: (mean(found[config], "rate"), mean(fresh[config], "rate")) for config in both if config not in unclear}
    left_out = "; ".join(f"not compared: {config}, {reason}" for config, reason in unclear.items())
    none = left_out or f"no config was measured both {start} and fresh"
    judge(context, report, f"rate, {start} against fresh", steady, (RATE_SHARE, 0.0), left_out, none)
    has_memory = [config for config in both if all(any(each["memory"] for each in way[config]) for way in (found, fresh))]
    peaks = {config: (peak(found[config]), peak(fresh[config])) for config in has_memory}
    none = f"no config has a peak both {start} and fresh"
    judge(context, report, f"memory, {start} against fresh", peaks, (MEMORY_SHARE, MEMORY_BYTES), "", none)


def judge(
    context: Context,
    report: Report,
    row: str,
    pairs: dict[str, tuple[float, float]],
    limits: tuple[float, float],
    left_out: str,
    none: str,
) -> None:
    """A row of the pair that is furthest apart. Differences may be a share of the fresh value, or an absolute value."""
    share, least = limits
    expected = f"within {share:.0%}"
    if not pairs:
        report.skip(row, expected, none)
        return
    worst = max(pairs, key=lambda config: abs(pairs[config][0] - pairs[config][1]) / max(pairs[config][1], 1e-9))
    value, fresh = pairs[worst]
    change = (value - fresh) / max(fresh, 1e-9)
    seen = f"{change:+.1%} of {fresh:.4g} with {worst}, the furthest of {len(pairs)}" + (f"; {left_out}" if left_out else "")
    if context.dry:
        report.tell(row, expected, f"{seen}; a dry run on {context.trains_on}")
    else:
        near = all(abs(value - fresh) <= max(share * fresh, least) for value, fresh in pairs.values())
        report.judge(row, expected, seen, near)


def why_unclear(fresh: list[Measured]) -> str:
    """Why no rate can be compared with these fresh processes of a config; empty if it can."""
    count = len({each["process"] for each in fresh})
    if count < 2:
        return "measured by 1 fresh process"
    rates = [rate for each in fresh for rate in each["rates"]]
    spread = (max(rates) - min(rates)) / max(statistics.mean(rates), 1e-9)
    return f"whose rates in {count} fresh processes are {spread:.1%} apart" if spread > RATE_SHARE else ""


def mean(group: list[Measured], what: str) -> float:
    return statistics.mean(each[what] for each in group)


def peak(group: list[Measured]) -> float:
    return max(float(each["memory"] or 0) for each in group)


def read(path: Path) -> list[Measured]:
    try:
        content = json.loads(path.read_text())
        return content if isinstance(content, list) else []
    except (OSError, ValueError):
        return []
