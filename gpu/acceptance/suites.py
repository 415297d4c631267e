"""The hook's own tests on the machine with the GPU: a few tests of a class in a process, several processes at a time."""

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
from .failing import RAN
from .process import Done
from .results import FAILED, Report

PYTHON_TESTS = GPU_FOLDER.parent / "tests" / "python"
#: Runs tests, and prints the reasons of failures also at the limit.
FAILING = Path(__file__).resolve().with_name("failing.py")
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
#: A class with more tests is divided, because at the limit a process leaves out the rest of its tests.
MOST_TESTS = 4
#: At the limit: for the reasons of failures (`failing.py`), and for the end of all processes.
GRACE_SECONDS, END_SECONDS = 1.0, 4
DRY_SECONDS = 45


def tests_of(path: Path) -> dict[str, list[str]]:
    """The test classes of a file with their tests, which they define themselves or inherit in this file."""
    defined = {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}

    def tests(name: str) -> list[str]:
        node = defined.get(name)
        if node is None:
            return []
        own = [part.name for part in node.body if isinstance(part, ast.FunctionDef) and part.name.startswith("test_")]
        inherited = [test for base in node.bases if isinstance(base, ast.Name) for test in tests(base.id)]
        return sorted({*own, *inherited})

    return {name: found for name in defined if (found := tests(name))}


def units_of(path: Path) -> list[str]:
    """The names of the tests for each process, separated by spaces: a class, or a few tests of a large class."""
    units = []
    for name, tests in tests_of(path).items():
        parts = -(-len(tests) // MOST_TESTS)
        named = [f"{path.stem}.{name}.{test}" for test in tests]
        units += [" ".join(named[part::parts]) for part in range(parts)] if parts > 1 else [f"{path.stem}.{name}"]
    return units


def python(context: Context, report: Report) -> None:
    """All suites, as far as the time goes. A failure stops no other test."""
    there = [suite for suite in SUITES if (PYTHON_TESTS / f"{suite}.py").exists()]
    for suite in SUITES:
        if suite not in there:
            report.skip(suite, "passes", f"{PYTHON_TESTS} is not there: carry the tree")
    units = [unit for suite in there for unit in units_of(PYTHON_TESTS / f"{suite}.py")]
    # tests/python/harness.py reads where its scripts train.
    environment = {**context.environment(), "GPUTUNE_TEST_DEVICE": context.test_device, "PYTHONPATH": ""}
    if not context.dry:
        # Without compiled modules each import of PyTorch takes seconds more, and these tests start hundreds of scripts.
        environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(context.folder("cache/bytecode"))}
    # A dry run shows that the suites are found and judged; the project's own checks run them whole.
    seconds = min(context.left, DRY_SECONDS) if context.dry else context.left
    run_all(report, units, seconds - END_SECONDS, partial(run_unit, environment))


def run_unit(environment: dict[str, str], unit: str, limit: float) -> Done:
    command = [sys.executable, str(FAILING), *unit.split()]
    return process.run(command, limit, cwd=PYTHON_TESTS, env=environment, grace=GRACE_SECONDS)


def run_all(report: Report, units: list[str], seconds: float, run: Callable[[str, float], Done]) -> None:
    """Runs the units in parallel, and judges a suite when its last unit has ended."""
    end = time.monotonic() + seconds

    def work(unit: str) -> Optional[Done]:
        left = end - time.monotonic()
        return run(unit, left) if left > 0 else None

    ended: dict[str, list[Done]] = {}
    took: dict[str, float] = {}
    waiting: dict[str, int] = {}
    for unit in units:
        waiting[unit.split(".")[0]] = waiting.get(unit.split(".")[0], 0) + 1
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_AT_A_TIME)) as pool:
        begun = {pool.submit(work, unit): unit for unit in units}
        for future in as_completed(begun):
            unit, done = begun[future], future.result()
            suite = unit.split(".")[0]
            took[unit.split()[0]] = round(done.seconds, 1) if done else 0.0
            report.number(seconds=took)
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
    ran: list[str] = []
    for done in units:
        ended = results_of(done.stderr)
        ran += re.findall(rf"^{RAN} (.*)", done.stderr, re.MULTILINE)
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
        last = f", and at the limit ran {', '.join(ran)}" if ran else ""
        report.skip(f"{suite}, the rest", expected, f"no time: {counts['ok']} had ended{last}")
