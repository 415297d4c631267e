"""Three calls of ten minutes each, as a machine with a GPU may be had for no longer: what each shows, and when."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import FIRST, SECOND, THIRD
from .context import Check

#: Of ten minutes: what the start of the machine's Python and the packing of results take is left.
CALL_SECONDS = 570


@dataclass(frozen=True)
class Call:
    """What one call of the script does."""

    about: str
    checks: list[Check]

    @property
    def expected_seconds(self) -> int:
        """What it takes where nothing goes wrong."""
        return sum(check.expected for check in self.checks)


CALLS = [
    Call("raw facts, meters, limits, failures, ways to start, and the hook on a real device", FIRST),
    Call("diagnoses, energy, the cost of observation", SECOND),
    Call("two searches to their end, beside their grids", THIRD),
]


def text() -> str:
    """The plan, with the second at which each check is expected to begin."""
    lines = []
    for number, call in enumerate(CALLS, start=1):
        times = f"expected {clock(call.expected_seconds)}, at most {clock(CALL_SECONDS)}"
        lines.append(f"call {number}: {call.about}; {times}")
        at = 0
        for check in call.checks:
            lines.append(f"  {clock(at):>5}  {check.name:19} at most {check.limit_seconds:>3} s  {check.about}")
            at += check.expected
    return "\n".join(lines)


def clock(seconds: int) -> str:
    return f"{seconds // 60}:{seconds % 60:02}"
