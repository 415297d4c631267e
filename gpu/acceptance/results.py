"""What the checks found: rows of a table, kept as JSON."""

from __future__ import annotations

import itertools
import json
import shutil
import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional

from . import machine, process

FILE = "results.json"
#: What the check that runs has found so far; gone once it is in the results.
RUNNING = "running.json"
FILES = (FILE, RUNNING, "table.txt", "images-grid.csv", "gpt-grid.csv", "manifest.json", "searches.tar.gz")
#: A row that is told is a fact about the machine, which is neither right nor wrong. A meter is absent if a sandbox hides it.
PASSED, FAILED, SKIPPED, TOLD, ABSENT = "passed", "failed", "skipped", "told", "absent"
OUTCOMES = (PASSED, FAILED, SKIPPED, TOLD, ABSENT)
#: How much of what a failed command wrote to stderr is kept.
STDERR_BYTES = 2048


@dataclass
class Row:
    """One line of the table."""

    check: str
    expected: str
    seen: str
    outcome: str
    #: The end of the stderr of the last command before a failure.
    stderr: str = ""

    def line(self, widths: list[int]) -> str:
        shown = {PASSED: "yes", FAILED: "NO", SKIPPED: "-", TOLD: "told", ABSENT: "absent"}[self.outcome]
        cells = [self.check, self.expected, self.seen, shown]
        wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths)]
        height = max(len(cell) for cell in wrapped)
        lines = []
        for index in range(height):
            parts = [cell[index] if index < len(cell) else "" for cell in wrapped]
            lines.append("  ".join(part.ljust(width) for part, width in zip(parts, widths)).rstrip())
        return "\n".join(lines)


@dataclass
class Report:
    """What one check reports, while it runs: each row and number is on disk the moment it is known."""

    path: Path
    name: str
    rows: list[Row] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def judge(self, what: str, expected: str, seen: str, passed: bool) -> None:
        self.add(what, expected, seen, PASSED if passed else FAILED)

    def skip(self, what: str, expected: str, why: str) -> None:
        self.add(what, expected, f"skipped: {why}", SKIPPED)

    def tell(self, what: str, expected: str, seen: str) -> None:
        self.add(what, expected, seen, TOLD)

    def missing(self, what: str, expected: str, why: str) -> None:
        """A value that is not there: a failure, unless a sandbox may hide it."""
        sandbox = machine.sandbox()
        self.add(what, expected, f"{why}, in {sandbox}" if sandbox else why, ABSENT if sandbox else FAILED)

    def add(self, what: str, expected: str, seen: str, outcome: str, stderr: Optional[str] = None) -> None:
        if stderr is None:
            stderr = process.last_stderr()
        self.rows.append(failed_row(f"{self.name}: {what}", expected, seen, outcome, stderr))
        self.write()

    def number(self, **numbers: Any) -> None:
        self.numbers.update(numbers)
        self.write()

    def write(self) -> None:
        content = {"check": self.name, "rows": [asdict(row) for row in self.rows], "numbers": self.numbers}
        replace(self.path, json.dumps(content, indent=1))


def failed_row(check: str, expected: str, seen: str, outcome: str, stderr: str) -> Row:
    """A row, with the end of stderr if the outcome is a failure."""
    kept = stderr.encode(errors="replace")[-STDERR_BYTES:].decode(errors="ignore") if outcome == FAILED else ""
    return Row(check, expected, seen, outcome, kept)


def replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all, whenever this process ends."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


def read_report(path: Path) -> tuple[list[Row], dict[str, Any]]:
    """The rows and numbers of a check, those of one that was cut short included."""
    try:
        content = json.loads(path.read_text())
        return [Row(**row) for row in content["rows"]], content["numbers"]
    except (OSError, ValueError, KeyError, TypeError):
        return [], {}


def table(rows: list[Row]) -> str:
    """The rows as text for a terminal."""
    widths = [38, 36, 42, 6]
    head = Row("check", "expected", "seen", PASSED).line(widths).replace("yes", "pass")
    return "\n".join([head, "-" * (sum(widths) + 6), *(row.line(widths) for row in rows)])


def totals(rows: list[Row]) -> dict[str, int]:
    return {outcome: sum(row.outcome == outcome for row in rows) for outcome in OUTCOMES}


def earlier_checks(out: Path, identity: dict[str, Any]) -> tuple[dict[str, Any], Optional[Path]]:
    """The checks of an earlier call with the same binary on the same GPU, to be kept beside those of this call.

    Results of another binary, GPU or driver move to a folder beside this one, which is the second value."""
    try:
        content = json.loads((out / FILE).read_text())
        checks = content["checks"]
        if isinstance(checks, dict) and all(content["machine"].get(key) == value for key, value in identity.items()):
            return checks, None
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return {}, move_away(out)


def move_away(out: Path) -> Path:
    numbers = (out.with_name(f"{out.name}-earlier-{number}") for number in itertools.count(1))
    folder = next(path for path in numbers if not path.exists())
    folder.mkdir()
    for name in FILES:
        if (out / name).exists():
            shutil.move(str(out / name), str(folder / name))
    return folder
