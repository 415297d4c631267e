"""Test suites that were built or written elsewhere, run on the machine with the GPU."""

from __future__ import annotations

import re
import sys

from . import process
from .context import GPU_FOLDER, Context
from .results import Report

PYTHON_TESTS = GPU_FOLDER.parent / "tests" / "python"
SUITES = ("test_hook", "test_hook_targets", "test_hook_by_hand", "test_hook_timeline")


def rust(context: Context, report: Report) -> None:
    """The tests that are ignored without a GPU, of the library's test binary."""
    expected = "all that need a GPU pass"
    if not context.tests:
        report.skip("tests of the library", expected, "no test binary was named: --tests FILE")
        return
    done = process.run([context.tests, "--ignored", "--test-threads", "1"], context.left - 1, env=context.environment())
    said = done.stdout + done.stderr
    for name, result in re.findall(r"^test (\S+)(?: - .*?)? \.\.\. (ok|FAILED)", said, re.MULTILINE):
        report.judge(name.rsplit("::", 1)[-1], "passes", result, result == "ok")
    found = re.search(r"test result: \w+\. (\d+) passed; (\d+) failed", said)
    if found and int(found[1]) + int(found[2]):
        report.judge("tests of the library", expected, f"{found[1]} passed, {found[2]} failed", found[2] == "0")
    elif context.dry and found:
        report.skip("tests of the library", expected, "a dry run: none were there to run")
    else:
        report.judge("tests of the library", expected, f"{done.ended}: {done.last_line()}", False)


def python(context: Context, report: Report, suite: str) -> None:
    """A suite of the hook's own tests, as far as the time goes."""
    if not (PYTHON_TESTS / f"{suite}.py").exists():
        report.skip(suite, "passes", f"{PYTHON_TESTS} is not there: carry the tree")
        return
    command = [sys.executable, "-m", "unittest", "-v", "-f", suite]
    done = process.run(command, context.left - 1, cwd=PYTHON_TESTS, env=context.environment())
    results = re.findall(r"\.\.\. (ok|FAIL|ERROR|skipped)", done.stderr)
    failed = [line for line in done.stderr.splitlines() if line.startswith(("FAIL:", "ERROR:"))]
    passed, rest = results.count("ok"), "" if done.code is not None else ", the rest had no time"
    seen = "; ".join(failed[:3]) or f"{passed} passed{rest}"
    if passed == 0 and not failed and done.code is None:
        report.skip(suite, "none fails", "no test ended in time")
    else:
        report.judge(suite, "none fails", seen, not failed and passed > 0)

