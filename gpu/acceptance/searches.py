"""Whole searches: two PyTorch scripts, and every config of their spaces for comparison."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from . import machine, process, tables
from .context import SCRIPTS, SPECS, Context
from .results import Report

PARAMETERS = ["batch_size", "workers", "prefetch", "precision", "compile"]
KINDS = {"batch_size": "ordinal-log2", "workers": "ordinal", "prefetch": "ordinal"}
# 14 workers with 4 batches each of 512 pictures, 128 by 128, in single precision.
SHARED_BYTES = 6 << 30
MANIFEST = "manifest.json"


def best(out: Path) -> dict[str, Any]:
    try:
        content = json.loads((out / "best.json").read_text())
        return {key: content.get(key) for key in ("config", "throughput", "speedup", "ties", "trace")}
    except (OSError, ValueError):
        return {}


#: More of a grid tells little more of a search.
GRID_CONFIGS = 40


def spec_of(context: Context, name: str, grid: bool) -> Path:
    """The spec of a search or a grid, for the time that there is."""
    base = "tiny" if context.tiny else name
    file = SPECS / f"{base}{'-grid' if grid else ''}.toml"
    if context.tiny:
        return file
    # Its end, with rounds, comes before the end of the check.
    seconds = max(int(context.left) - 8, 10)
    limit = ("probes", str(GRID_CONFIGS)) if grid else ("time", f'"{seconds}s"')
    text = re.sub(rf"(?m)^{limit[0]} = .*$", f"{limit[0]} = {limit[1]}", file.read_text())
    text = text.replace("[step]\n", f"[step]\ncwd = {json.dumps(str(SPECS))}\n", 1)
    copy = context.folder(name) / file.name
    copy.write_text(text)
    return copy


def prepare(context: Context, report: Report, name: str) -> None:
    """Writes the pictures before the first probe, so that none has to wait for them."""
    if name == "images" and not context.tiny:
        room = machine.shared_memory_bytes()
        if room is not None and room < SHARED_BYTES:
            expected = f"{SHARED_BYTES / 2**30:.0f} GiB, for batches of 100 MB from 14 workers"
            report.skip("/dev/shm", expected, f"{room / 2**30:.2f} GiB; configs may fail for lack of it")
        process.run([sys.executable, str(SCRIPTS / "images.py"), "--prepare"], min(context.left, 120))


def search(context: Context, report: Report, name: str) -> None:
    prepare(context, report, name)
    out = context.folder(name) / "search"
    done = context.gputune("search", spec_of(context, name, grid=False), "--out", out, "--fresh", "--format", "json")
    trials = tables.read_journal(out / "journal.jsonl")
    what, expected = "the search", "runs to its end (exit code 0)"
    seen = f"{done.ended}; {len(trials)} trials in {done.seconds:.0f} s"
    if context.dry and done.code is None:
        report.skip(what, expected, f"a dry run had no time for it ({seen})")
    else:
        report.judge(what, expected, seen, done.code == 0)
    found = best(out)
    report.number(trials=len(trials), seconds=done.seconds, **found)
    if not context.tiny:
        judge_trace(report, out)
    metered = [trial for trial in trials if trial["outcome"] == "measured" and tables.gpu_readings(trial)]
    measured = [trial for trial in trials if trial["outcome"] == "measured"]
    if not context.tiny:
        report.judge(
            "probes that were metered",
            f"{len(measured)} (all measured ones)",
            str(len(metered)),
            len(metered) == len(measured) > 0,
        )
    compare(context, report, name)


def judge_trace(report: Report, out: Path) -> None:
    """The recorded steps of the best config."""
    what, expected = "recorded steps", "kernels, with gaps and an estimated efficiency from 0 to 1"
    trace = best(out).get("trace")
    if not trace:
        report.skip(what, expected, "there was no time for them")
        return
    shares = [trace.get("idle_share"), trace.get("estimated_sm_efficiency")]
    is_sound = trace.get("kind") == "kernels" and all(share is not None and 0 <= share <= 1 for share in shares)
    file = out / str(trace.get("file"))
    seen = f"{trace.get('kind')}, {shares}, {file.stat().st_size / 2**20:.1f} MiB" if file.is_file() else f"no {file}"
    report.number(trace=trace)
    report.judge(what, expected, seen, is_sound and file.is_file())


def grid(context: Context, report: Report, name: str) -> None:
    """Goes on with the grid where an earlier call ended, and writes what there is of it as a table."""
    prepare(context, report, name)
    out = context.folder(name) / "grid"
    # What is left after the search is stopped is for the table.
    spec = spec_of(context, name, grid=True)
    done = context.gputune("search", spec, "--out", out, limit=context.left - 6)
    trials = tables.read_journal(out / "journal.jsonl")
    made = tables.rows(trials, PARAMETERS)
    complete = done.code == 0
    report.number(configs=len(made), complete=complete, seconds=done.seconds)
    if not made:
        report.judge("the grid", "configs in its journal", f"none; {done.ended}: {done.last_line()}", False)
        return
    failed = sum(row["status"] != "ok" for row in made)
    seen = f"{len(made)} configs, {failed} failures{compiled_failures(made)}"
    if complete:
        report.judge("the grid", "is complete", seen, True)
    elif done.code in (None, 130):
        report.skip("the grid", "is complete", f"no time left after {seen}; the same command goes on")
    else:
        report.judge("the grid", "is complete", f"{seen}; {done.ended}: {done.last_line()}", False)
    judge_compile(report, made)
    write(context, name, made, complete)
    compare(context, report, name)


def compiled(made: list[tables.Row]) -> tuple[int, int]:
    """How many configs have `torch.compile`, and how many of them failed for another reason than memory."""
    statuses = [row["status"] for row in made if row.get("compile") not in ("", "off", None)]
    return len(statuses), sum(status not in ("ok", "oom_fail") for status in statuses)


def compiled_failures(made: list[tables.Row]) -> str:
    count, failed = compiled(made)
    return f", {failed} of {count} with torch.compile failed, memory aside" if failed else ""


def judge_compile(report: Report, made: list[tables.Row]) -> None:
    """A table in which `torch.compile` never works is no table of it, however complete."""
    count, failed = compiled(made)
    if count == 0:
        return
    what, expected = "torch.compile in the grid", "at most 5 % of its configs fail, memory aside"
    seen = f"{failed} of {count} failed ({100 * failed / count:.0f} %)"
    report.number(compile_configs=count, compile_failures=failed)
    missing = machine.missing_for_compile()
    if failed == count and missing:
        report.skip(what, expected, f"{seen}; Triton needs {missing}")
    else:
        report.judge(what, expected, seen, failed <= 0.05 * count)


def write(context: Context, name: str, made: list[tables.Row], complete: bool) -> None:
    table = Path(context.out) / f"{name}-grid.csv"
    tables.write_table(table, made, PARAMETERS)
    path = Path(context.out) / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except (OSError, ValueError):
        manifest = {}
    hardware = (Path(context.state) / "device").read_text() if (Path(context.state) / "device").exists() else "CPU"
    note = f"samples per second of gpu/scripts/{name}.py" + ("" if complete else "; not every config of the grid")
    manifest[f"{name}-grid"] = tables.manifest(made, PARAMETERS, KINDS, hardware, note)
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def compare(context: Context, report: Report, name: str) -> None:
    """How good the search's winner is among all configs, by what the grid measured of them."""
    folder = context.folder(name)
    winner = best(folder / "search").get("config")
    made = tables.rows(tables.read_journal(folder / "grid" / "journal.jsonl"), PARAMETERS)
    values = [float(row["value"]) for row in made if row["status"] == "ok"]
    if not winner or not values:
        report.skip("the search's winner in the grid", "at least 95 % of its best", f"needs {name} and {name}-grid")
        return
    value = tables.value_of(made, winner, PARAMETERS)
    if value is None:
        report.skip("the search's winner in the grid", "at least 95 % of its best", "the grid has not come to it")
        return
    report.number(winner=winner, winner_in_grid=value, best_of_grid=max(values), grid_configs=len(made))
    report.judge(
        "the search's winner in the grid",
        "at least 95 % of its best",
        f"{100 * value / max(values):.1f} % of {len(made)} configs",
        value >= 0.95 * max(values),
    )
