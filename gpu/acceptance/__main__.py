"""Runs the checks, each in a process of its own and within its time, and writes what they found."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from . import archive, holding, machine, place, plan, process, results
from .checks import CHECKS, named
from .context import Check, Context
from .results import FAILED, SKIPPED, Report, Row, failed_row

ALL_PASSED, SOME_FAILED, USAGE, SOME_SKIPPED = 0, 1, 2, 3
#: A check of a dry run is worth a start with so much: the import of PyTorch and some steps.
DRY_SECONDS = 12
#: The time to end a check at its limit and to pack the results.
END_SECONDS = 4
EPILOG = """exit codes:
  0  every check that was asked for ran and passed
  1  a check failed
  2  wrong arguments
  3  no check failed, and at least one was skipped: no GPU, no PyTorch, no time left"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpu/acceptance.sh",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("binary", nargs="?", help="the gputune to check")
    made.add_argument(
        "--out", default="gpu-acceptance", help="folder for the results, at most seven files [gpu-acceptance]"
    )
    made.add_argument(
        "--state",
        help="folder for searches, logs and datasets, from which a later call goes on; it has to be the user's own "
        "[gputune/acceptance in $XDG_STATE_HOME or ~/.local/state]",
    )
    made.add_argument("--plan", action="store_true", help="show the three calls with their times and end")
    made.add_argument("--call", type=int, choices=range(1, len(plan.CALLS) + 1), help="run this call of the plan")
    made.add_argument(
        "--dry-run",
        action="store_true",
        help="without a GPU: try the checks themselves on the processor; nothing is called passed of a GPU",
    )
    made.add_argument(
        "--minutes", type=float, help=f"time for all checks together [{plan.CALL_SECONDS / 60} with --call or --dry-run, else 240]"
    )
    made.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="run these checks only: NAME,NAME or given again"
    )
    made.add_argument("--list", action="store_true", help="list the checks and end")
    made.add_argument(
        "--tiny",
        action="store_true",
        help="run `images` and `images-grid` with two tiny configs, also without a GPU: "
        "tries the checks themselves, and says nothing of a GPU",
    )
    made.add_argument("--child", metavar="NAME", help=argparse.SUPPRESS)
    made.add_argument("--context", help=argparse.SUPPRESS)
    return made


def chosen(only: list[str]) -> list[Check]:
    names = [name for part in only for name in part.split(",") if name]
    known = [check.name for check in CHECKS]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no check {', '.join(unknown)}; there are {', '.join(known)}")
    return [check for check in CHECKS if not names or check.name in names]


def listing() -> str:
    lines = [f"{check.name:12} {limit(check):>9}  {check.about}" for check in CHECKS]
    return "\n".join([f"{'check':12} {'at most':>9}  what", *lines])


def limit(check: Check) -> str:
    return "all left" if check.limit_seconds > 3600 else f"{check.limit_seconds} s"


def why_not(check: Check, facts: dict[str, Any], tiny: bool, left: float, dry: bool = False) -> Optional[str]:
    """Why a check cannot run here, if it cannot."""
    if tiny and check.name in ("images", "images-grid"):
        return None if "torch" in facts else "no PyTorch"
    if dry:
        if not check.runs_dry:
            return "a dry run, and it needs a GPU"
        return "no PyTorch" if check.needs_torch and "torch" not in facts else too_late(check, left, DRY_SECONDS)
    if check.needs_gpu and "gpu" not in facts:
        return "no GPU"
    if check.needs_torch and not facts.get("torch_sees_gpu"):
        return "no PyTorch that sees the GPU" if "torch" in facts else "no PyTorch"
    return too_late(check, left)


def too_late(check: Check, left: float, most: float = 1e9) -> Optional[str]:
    """That a check does not fit into the time that is left, with what ending it may take."""
    needed = min(check.least, check.limit_seconds, most)
    return f"{left:.0f} s are left, and it needs {needed} s" if left < needed + END_SECONDS else None


@dataclass
class Entry:
    """What a check found in this call."""

    rows: list[Row]
    numbers: dict[str, Any]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": [vars(row) for row in self.rows],
            "numbers": self.numbers,
            "seconds": round(self.seconds, 1),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }


def run_check(check: Check, context: Context) -> Entry:
    """Runs a check in a process of its own, and says so where it did not come to its end."""
    path = Path(context.out) / results.RUNNING
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "acceptance", "--child", check.name, "--context", context.to_json()]
    done = process.run(command, context.seconds, grace=END_SECONDS / 2)
    rows, numbers = results.read_report(path)
    itself = f"{check.name}: the check itself"
    if done.code is None:
        # A processor that does what a GPU is meant to do may well need longer.
        seen, outcome = ("skipped: was ended in a dry run", SKIPPED) if context.dry else ("was ended", FAILED)
        rows.append(failed_row(f"{check.name}: time", f"ends within {context.seconds:.0f} s", seen, outcome, done.stderr))
    elif done.code != 0:
        rows.append(failed_row(itself, "runs", f"{done.ended}: {done.last_line()}", FAILED, done.stderr))
    elif not rows:
        rows.append(failed_row(itself, "finds something", "nothing", FAILED, done.stderr))
    return Entry(rows, numbers, done.seconds)


def child(name: str, text: str) -> int:
    """One check, in the process that `run_check` started."""
    context = Context(**json.loads(text))
    # The report stays beside the results if the check is cut off.
    report = Report(Path(context.out) / results.RUNNING, name)
    try:
        named(name).run(context, report)
    except Exception as error:
        traceback.print_exc()
        words = f"{type(error).__name__}: {error}"
        report.add("the check itself", "runs", words, FAILED, stderr=traceback.format_exc())
    return 0


def write(out: Path, content: dict[str, Any], rows: list[Row]) -> None:
    results.replace(out / results.FILE, json.dumps(content, indent=1) + "\n")
    results.replace(out / "table.txt", results.table(rows) + "\n")
    (out / results.RUNNING).unlink(missing_ok=True)


def run_all(arguments: argparse.Namespace, checks: list[Check]) -> int:
    binary = str(Path(arguments.binary).resolve())
    out = Path(arguments.out).resolve()
    begun = time.monotonic()
    is_short = arguments.call or arguments.dry_run
    minutes = arguments.minutes or (plan.CALL_SECONDS / 60 if is_short else 240)
    # Half of the time at most, however long PyTorch takes to be imported.
    facts = machine.facts(binary, min(120, 30 * minutes), arguments.dry_run)
    # A search of another binary or GPU cannot be gone on with.
    state = place.own_folder(arguments.state) / machine.identity_key(facts)
    for folder in (out, state):
        folder.mkdir(parents=True, exist_ok=True)
    (state / "device").write_text(str(facts.get("gpu", "no GPU")))
    kept, moved = results.earlier_checks(out, machine.identity(facts))
    if moved:
        print(f"results of another binary, GPU or driver are now in {moved}", file=sys.stderr)
    say_where(facts, arguments.dry_run)
    held = holding.Held(state)
    rows: list[Row] = []
    try:
        for check in checks:
            left = minutes * 60 - (time.monotonic() - begun)
            reason = why_not(check, facts, arguments.tiny, left, arguments.dry_run)
            if reason:
                entry = Entry([Row(check.name, check.about, f"skipped: {reason}", SKIPPED)], {}, 0.0)
            else:
                print(f"... {check.name}: {check.about}", file=sys.stderr, flush=True)
                limit = min(check.limit_seconds, left - END_SECONDS)
                tiny = arguments.tiny or arguments.dry_run
                context = Context(binary, str(out), str(state), limit, tiny, arguments.dry_run, facts.get("card", ""))
                entry = run_check(check, context)
            rows += entry.rows
            # A skipped check takes nothing away from what an earlier call found.
            if not reason or check.name not in kept:
                kept[check.name] = entry.to_json()
            facts["nvml_handle"] = held.words()
            everything = [Row(**row) for each in kept.values() for row in each["rows"]]
            content = {"format": 1, "machine": facts, "totals": results.totals(everything), "checks": kept}
            write(out, content, everything)
            if any(row.outcome == FAILED for row in entry.rows):
                archive.pack(state, out)
    finally:
        held.end()
    archive.pack(state, out)
    return conclude(rows, out)


def say_where(facts: dict[str, Any], is_dry: bool) -> None:
    device, driver, torch = (facts.get(key, f"no {key}") for key in ("gpu", "driver", "torch"))
    print(f"{device}, driver {driver}, PyTorch {torch}, {facts['gputune']}")
    if is_dry:
        print(f"a dry run on {'the stand-in for a device' if facts.get('card') else 'the processor'}", end="")
        print(f": {facts['no_card']}" if facts.get("no_card") else "")


def conclude(rows: list[Row], out: Path) -> int:
    """Prints the table and the totals of this call, and returns the exit code."""
    print(results.table(rows))
    totals = results.totals(rows)
    print(", ".join(f"{count} {outcome}" for outcome, count in totals.items()) + f"; results in {out}")
    if totals[FAILED]:
        return SOME_FAILED
    return SOME_SKIPPED if totals[SKIPPED] else ALL_PASSED


def main() -> int:
    arguments = parser().parse_args()
    if arguments.child:
        return child(arguments.child, arguments.context)
    try:
        checks = chosen(arguments.only)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    if arguments.list or arguments.plan:
        print(plan.text() if arguments.plan else listing())
        return ALL_PASSED
    if arguments.call and not arguments.only:
        checks = plan.CALLS[arguments.call - 1].checks
    if not arguments.binary or not os.access(arguments.binary, os.X_OK) or not Path(arguments.binary).is_file():
        print(
            f"error: {arguments.binary or 'no binary was named; it'} is not a program that can be run", file=sys.stderr
        )
        return USAGE
    try:
        return run_all(arguments, checks)
    except place.NotOwn as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
