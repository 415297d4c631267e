"""The hook's own tests on the machine with the GPU: each class in a process, several processes at a time."""

from __future__ import annotations

import ast
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Callable, Optional

from . import process
from .context import GPU_FOLDER, Context
from .process import Done
from .results import FAILED, Report

PYTHON_TESTS = GPU_FOLDER.parent / "tests" / "python"
#: The exit code of unittest where every test was skipped (Python 3.12).
NO_TESTS_RAN = 5
#: Tests that are written for a device come first.
SUITES = (
    "test_hook_device",
    "test_hook_live",
    "test_zygote",
    "test_hook_flops",
    "test_hook_trace",
    "test_hook",
    "test_hook_targets",
    "test_hook_by_hand",
    "test_hook_timeline",
    "test_hook_experiments",
)
#: Each process has a context on the GPU, of about half a GiB.
MOST_AT_A_TIME = 16
#: For the end of the processes at the limit.
END_SECONDS = 3
DRY_SECONDS = 45


def classes(path: Path) -> list[str]:
    """The test classes of a file, by the methods that they define themselves or inherit in this file."""
    defined = {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}

    def has_tests(name: str) -> bool:
        node = defined.get(name)
        if node is None:
            return False
        own = any(isinstance(part, ast.FunctionDef) and part.name.startswith("test_") for part in node.body)
        return own or any(isinstance(base, ast.Name) and has_tests(base.id) for base in node.bases)

    return [name for name in defined if has_tests(name)]


def python(context: Context, report: Report) -> None:
    """All suites, as far as the time goes. A failure stops no other test."""
    there = [suite for suite in SUITES if (PYTHON_TESTS / f"{suite}.py").exists()]
    for suite in SUITES:
        if suite not in there:
            report.skip(suite, "passes", f"{PYTHON_TESTS} is not there: carry the tree")
    units = [f"{suite}.{name}" for suite in there for name in classes(PYTHON_TESTS / f"{suite}.py")]
    # tests/python/harness.py reads where its scripts train.
    environment = {**context.environment(), "GPUTUNE_TEST_DEVICE": context.test_device, "PYTHONPATH": ""}
    # A dry run shows that the suites are found and judged; the project's own checks run them whole.
    seconds = min(context.left, DRY_SECONDS) if context.dry else context.left
    run_all(report, units, seconds - END_SECONDS, partial(run_unit, environment))


def run_unit(environment: dict[str, str], unit: str, limit: float) -> Done:
    command = [sys.executable, "-m", "unittest", "-v", unit]
    # SIGINT would look like an error of the test that runs.
    return process.run(command, limit, cwd=PYTHON_TESTS, env=environment, grace=None)


def run_all(report: Report, units: list[str], seconds: float, run: Callable[[str, float], Done]) -> None:
    """Runs the units in parallel, and judges a suite when its last unit has ended."""
    end = time.monotonic() + seconds

    def work(unit: str) -> Optional[Done]:
        left = end - time.monotonic()
        return run(unit, left) if left > 0 else None

    ended: dict[str, list[Done]] = {}
    waiting: dict[str, int] = {}
    for unit in units:
        waiting[unit.split(".")[0]] = waiting.get(unit.split(".")[0], 0) + 1
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_AT_A_TIME)) as pool:
        begun = {pool.submit(work, unit): unit for unit in units}
        for future in as_completed(begun):
            suite, done = begun[future].split(".")[0], future.result()
            # A unit that had no time counts as interrupted.
            ended.setdefault(suite, []).append(done or Done(None, "", "", 0.0))
            waiting[suite] -= 1
            if waiting[suite] == 0:
                judge_suite(report, suite, ended[suite])


def results_of(printed: str) -> list[tuple[str, str]]:
    """Each test that ended, with its result. unittest prints them as they end, but the reasons of failures only at its own end."""
    name, found = "", []
    for part in re.finditer(r"^ *(\w+)(?= \()|\.\.\. (ok|FAIL|ERROR|skipped)", printed, re.MULTILINE):
        name = part[1] or name
        found += [(name, part[2])] if part[2] else []
    return found


def judge_suite(report: Report, suite: str, units: list[Done]) -> None:
    """Rows of what the processes of a suite printed. Tests that had no time are skipped, not passed."""
    expected = "none fails"
    counts = {"ok": 0, "skipped": 0}
    failed: list[str] = []
    words: list[str] = []
    for done in units:
        ended = results_of(done.stderr)
        for name in counts:
            counts[name] += [result for _, result in ended].count(name)
        failures = [line for line in done.stderr.splitlines() if line.startswith(("FAIL:", "ERROR:"))]
        failures = failures or [f"{result}: {name} ({done.ended})" for name, result in ended if result in ("FAIL", "ERROR")]
        if not failures and done.code not in (0, NO_TESTS_RAN, None):
            failures = [f"{done.ended}: {done.last_line()}"]
        failed += failures
        words += [done.stderr] if failures else []
    is_cut = any(done.code is None for done in units)
    if failed:
        seen = f"{len(failed)} failed, {counts['ok']} passed: " + "; ".join(failed[:3])
        report.add(suite, expected, seen, FAILED, stderr="\n".join(text[-1000:] for text in words))
    elif counts["ok"]:
        report.judge(suite, expected, f"{counts['ok']} passed, {counts['skipped']} were skipped", True)
    elif not is_cut:
        reason = next((found[1] for done in units if (found := re.search(r"skipped ['\"](.*)['\"]", done.stderr))), None)
        if reason or counts["skipped"]:
            report.skip(suite, expected, reason or "it skips itself")
        else:
            report.judge(suite, expected, f"{units[0].ended}: {units[0].last_line()}", False)
    if is_cut:
        report.skip(f"{suite}, the rest", expected, f"no time: {counts['ok']} had ended")
