"""The hook's own test suites, run on the machine with the GPU."""

from __future__ import annotations

import re
import sys

from . import process
from .context import GPU_FOLDER, Context
from .results import Report

PYTHON_TESTS = GPU_FOLDER.parent / "tests" / "python"
#: The exit code of unittest where every test was skipped (Python 3.12).
NO_TESTS_RAN = 5
#: What is written for a device comes first.
SUITES = (
    *("test_hook_device", "test_hook", "test_hook_targets", "test_hook_by_hand", "test_hook_timeline"),
    *("test_hook_live", "test_zygote"),  # how probes start on a GPU by default
)


def python(context: Context, report: Report, suite: str) -> None:
    """A suite of the hook's own tests, as far as the time goes."""
    if not (PYTHON_TESTS / f"{suite}.py").exists():
        report.skip(suite, "passes", f"{PYTHON_TESTS} is not there: carry the tree")
        return
    command = [sys.executable, "-m", "unittest", "-v", "-f", suite]
    # tests/python/harness.py reads where its scripts train.
    environment = {**context.environment(), "GPUTUNE_TEST_DEVICE": context.test_device, "PYTHONPATH": ""}
    done = process.run(command, context.left - 1, cwd=PYTHON_TESTS, env=environment)
    judge_suite(report, suite, done)


def judge_suite(report: Report, suite: str, done: process.Done) -> None:
    """Rows of what a suite printed. What had no time is skipped, not passed."""
    expected = "none fails"
    results = re.findall(r"\.\.\. (ok|FAIL|ERROR|skipped)", done.stderr)
    failed = [line for line in done.stderr.splitlines() if line.startswith(("FAIL:", "ERROR:"))]
    passed, is_cut = results.count("ok"), done.code is None
    if failed or "FAIL" in results or "ERROR" in results:
        report.judge(suite, expected, "; ".join(failed[:3]) or f"{done.ended}: {done.last_line()}", False)
    elif passed:
        report.judge(suite, expected, f"{passed} passed, {results.count('skipped')} were skipped", is_cut or done.code == 0)
    elif not is_cut and done.code in (0, NO_TESTS_RAN) and "skipped" in done.stderr:
        reason = re.search(r"skipped ['\"](.*)['\"]", done.stderr)
        report.skip(suite, expected, reason[1] if reason else "it skips itself")
    elif not is_cut:
        report.judge(suite, expected, f"{done.ended}: {done.last_line()}", False)
    if is_cut:
        report.skip(f"{suite}, the rest", expected, f"no time: {passed} had ended")
