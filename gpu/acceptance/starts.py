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
#: The largest differences of rates and memory from fresh processes.
RATE_SHARE, MEMORY_SHARE, MEMORY_BYTES = 0.05, 0.05, 64 << 20
#: What a spec without `start` has. On a GPU such a search must be live.
DEFAULT = "auto"
KEPT = "configs.json"
Configs = dict[str, dict[str, float]]


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
    found = configs(trials, STARTS[start])
    (folder / KEPT).write_text(json.dumps(found))
    report.number(configs=found, seconds=done.seconds, outcomes=outcomes)
    judge_start(context, report, start, found)
    if start == "fresh":
        for other in STARTS:
            if other != "fresh":
                compare(context, report, other, read(context.folder(f"starts/{other}") / KEPT), found)


def setting_of(start: str, is_dry: bool) -> str:
    """The setting `start` of the search. Without a GPU the default is not live."""
    return DEFAULT if start == "live" and not is_dry else start


def judge_start(context: Context, report: Report, start: str, found: Configs) -> None:
    """A search that cannot start probes this way falls back to fresh processes, and prints the reason."""
    expected = f"at least one config is measured {start}"
    if setting_of(start, context.dry) == DEFAULT:
        expected += f', with start = "{DEFAULT}"'
    if found or not context.dry:
        report.judge("the way to start", expected, f"{len(found)} configs", bool(found))
    else:
        report.skip("the way to start", expected, f"a dry run on {context.trains_on}: none")


def configs(trials: list[dict[str, Any]], mark: str) -> Configs:
    """The mean rate and the largest peak of each config, of trials with this mark; without one, of trials without any."""
    marks = [name for name in STARTS.values() if name]
    grouped: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:
        is_kind = trial.get(mark, False) if mark else not any(trial.get(name, False) for name in marks)
        if trial["outcome"] == "measured" and "throughput" in trial and "round" not in trial and is_kind:
            grouped.setdefault(json.dumps(trial["config"], sort_keys=True), []).append(trial)
    return {
        config: {
            "rate": statistics.mean(float(trial["throughput"]["value"]) for trial in group),
            "memory": max(float(trial.get("peak_memory_bytes") or 0) for trial in group),
        }
        for config, group in grouped.items()
    }


def compare(context: Context, report: Report, start: str, found: Configs, fresh: Configs) -> None:
    """A row for the rates and a row for the memory: the config that is furthest from the same config in a fresh process."""
    both = sorted(set(found) & set(fresh))
    for what, share, least in (("rate", RATE_SHARE, 0.0), ("memory", MEMORY_SHARE, float(MEMORY_BYTES))):
        name, expected = f"{what}, {start} against fresh", f"within {share:.0%}"
        if not both:
            report.skip(name, expected, f"no config was measured both {start} and fresh")
            continue
        apart = {config: found[config][what] - fresh[config][what] for config in both}
        worst = max(both, key=lambda config: abs(apart[config]) / max(fresh[config][what], 1e-9))
        change = apart[worst] / max(fresh[worst][what], 1e-9)
        seen = f"{change:+.1%} of {fresh[worst][what]:.4g} with {worst}, the furthest of {len(both)}"
        if context.dry:
            report.tell(name, expected, f"{seen}; a dry run on {context.trains_on}")
        else:
            near = all(abs(apart[config]) <= max(share * fresh[config][what], least) for config in both)
            report.judge(name, expected, seen, near)


def read(path: Path) -> Configs:
    try:
        content = json.loads(path.read_text())
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}
