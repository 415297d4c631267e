"""The losses of the demo step's first steps on the GPU, against those on the processor."""

from __future__ import annotations

import json
import math
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, Optional

from . import process
from .context import Context
from .results import Report

STEPS = 15
FALL = 1.0
# How far a step's loss may be from the processor's in the same precision. Both round alike, but add up in another
# order, and each step goes on from the rounding of those before it.
TOLERANCES = {"f32": 0.005, "tf32": 0.02, "f16": 0.03, "bf16": 0.06}


class Listener:
    """The other end of the socket to which a step reports its events."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(1)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            connection, _ = self._socket.accept()
            with connection, connection.makefile(errors="replace") as events:
                self.lines += events
        except OSError:
            return

    def stop(self) -> list[dict[str, Any]]:
        """The events that came."""
        self._thread.join(timeout=2)
        self._socket.close()
        events = []
        for line in self.lines:
            try:
                events.append(json.loads(line))
            except ValueError:
                continue
        return [event for event in events if isinstance(event, dict)]


def demo_step(context: Context, report: Report, precision: str) -> None:
    """A precision on both, step by step."""
    tolerance = TOLERANCES[precision]
    wanted, _, cpu = train(context, "cpu", precision)
    found, framework, gpu = train(context, "gpu", precision)
    report.number(cpu=wanted, gpu=found, framework=framework)
    for device, done, losses in (("CPU", cpu, wanted), ("GPU", gpu, found)):
        if done.code != 0 or len(losses) < STEPS:
            seen = f"{done.ended}, {len(losses)} steps: {done.last_line()}"
            report.judge(f"{precision} on the {device}", f"{STEPS} steps", seen, False)
    if min(len(wanted), len(found)) < STEPS:
        return
    report.judge(f"{precision}, what trains", "a GPU", framework, "GPU" in framework)
    wrong = disagreement(found, wanted, tolerance)
    far = max(abs(one / other - 1) for one, other in zip(found, wanted))
    seen = wrong or f"at most {100 * far:.2f} % apart, from {found[0]:.3f} to {found[-1]:.3f}"
    expected = f"each within {100 * tolerance:.1f} % of the CPU's, falling by {FALL:.0f} or more"
    report.judge(f"{precision}, losses of {STEPS} steps", expected, seen, wrong is None)


def train(context: Context, device: str, precision: str) -> tuple[list[float], str, process.Done]:
    """The losses, what the step says that it is, and how it ended."""
    # The path of a socket has room for some hundred characters only.
    with tempfile.TemporaryDirectory(prefix="gputune-") as folder:
        path = Path(folder) / "events"
        listener = Listener(path)
        options = {"device": device, "precision": precision, "batch-size": 64, "steps": STEPS, "workers": 2}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        done = context.gputune("demo-step", *words, limit=60, more={"GPUTUNE_SOCKET": str(path)})
        events = listener.stop()
    losses = [number(event.get("loss")) for event in events if event.get("event") == "step"]
    frameworks = [str(event.get("framework")) for event in events if event.get("event") == "hello"]
    return losses, (frameworks or ["nothing"])[-1], done


def number(loss: Any) -> float:
    """What is no number is written as nothing."""
    return float(loss) if isinstance(loss, (int, float)) else math.nan


def disagreement(found: list[float], wanted: list[float], tolerance: float) -> Optional[str]:
    """What is wrong with losses, if anything."""
    for step, (loss, other) in enumerate(zip(found, wanted), start=1):
        if not (math.isfinite(loss) and loss > 0):
            return f"{loss} in step {step}"
        if not abs(loss - other) <= tolerance * other:
            return f"{loss:.4f} in step {step}, not {other:.4f}"
    fallen = found[0] - found[-1]
    return None if fallen >= FALL else f"fell by {fallen:.3f} only"
