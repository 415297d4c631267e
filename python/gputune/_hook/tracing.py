"""The experiment `trace`: records a few steps with `torch.profiler`, in a separate run that is not measured.

On a GPU the trace has kernels and copies, on the CPU operators. Perfetto (https://ui.perfetto.dev), Chrome and
TensorBoard open the file. Not yet tested on a GPU.
"""

from __future__ import annotations

import gzip
import json
import os
from typing import Any, Optional

from gputune._client import rank_and_ranks
from gputune._hook import trace_numbers
from gputune._hook.devices import is_in_use
from gputune._hook.parts import Hook

#: The file, next to `probe.json`. gputune moves it next to the log. TensorBoard's plugin looks for this ending.
FILE = "trace.pt.trace.json.gz"

#: Steps before the recording, in which compilation, autotuning and the capture of CUDA graphs end. A round number.
_BEFORE = 10
#: Number of first profiled steps to drop, as the profiler's first calls are slow, and number of steps to record.
_DROPPED, _RECORDED = 1, 4

#: Most bytes of a file. A step of a large model has 10,000 kernels, which take a megabyte. A round number.
_MOST_BYTES = 64 << 20

#: The name that the profiler gives to each step.
_STEP = "ProfilerStep#"


class Tracing:
    """Records the steps once, on rank 0."""

    def __init__(self, hook: Hook, folder: str) -> None:
        self._hook = hook
        self._path = os.path.join(folder, FILE)
        self._profile: Any = None
        self._is_over = False

    def install(self) -> None:
        self._hook.steps.endings.append(self._end_step)

    def _end_step(self, is_marked: bool) -> None:
        number = self._hook.steps.number - _BEFORE
        if self._is_over or number < 0 or rank_and_ranks()[0] != 0:
            return
        try:
            if number == 0:
                self._begin()
            elif number == _DROPPED + _RECORDED:
                self._end()
            elif self._profile is not None:
                self._profile.step()
        except Exception as error:  # such as if CUPTI is missing
            self._give_up(error)

    def _begin(self) -> None:
        from torch import profiler

        wanted = {profiler.ProfilerActivity.CPU}
        if is_in_use("cuda"):
            wanted.add(profiler.ProfilerActivity.CUDA)
        plan = profiler.schedule(wait=0, warmup=_DROPPED, active=_RECORDED, repeat=1)
        self._profile = profiler.profile(activities=sorted(wanted & profiler.supported_activities(), key=str), schedule=plan)
        self._profile.start()

    def _end(self) -> None:
        """Writes the file, and reports its numbers."""
        self._is_over = True
        recorded, self._profile = self._profile, None
        if recorded is None:
            return
        recorded.stop()  # waits for the device
        recorded.export_chrome_trace(self._path)
        with gzip.open(self._path, "rt", encoding="utf-8", errors="replace") as file:
            events = json.load(file)["traceEvents"]
        if os.path.getsize(self._path) > _MOST_BYTES:
            os.unlink(self._path)
        steps = _steps(events)
        if steps is None:
            raise ValueError("the profiler recorded no steps")
        self._say(trace_numbers.numbers(events, steps), (steps[1] - steps[0]) / _RECORDED / 1e6)

    def _say(self, found: dict[str, Any], seconds: float) -> None:
        say = self._hook.facts.say
        say("trace.step_seconds", seconds)
        say("trace.kind", found["kind"])
        say("trace.top", json.dumps(found["top"]))
        say("trace.idle_share", found.get("idle_share"))
        say("trace.copy_overlap", found.get("copy_overlap"))
        say("trace.sm_efficiency", found.get("sm_efficiency"))
        say("trace.occupancy", found.get("occupancy"))
        say("trace.steps", _RECORDED)  # must be the last fact, as gputune waits for it
        self._hook.session.flush()

    def _give_up(self, error: Exception) -> None:
        self._is_over = True
        recorded, self._profile = self._profile, None
        try:
            if recorded is not None:
                recorded.stop()
        except Exception:  # the profiler was not started
            pass
        self._hook.facts.say("trace.error", f"{type(error).__name__}: {error}"[:500])
        self._hook.session.flush()


def _steps(events: list[dict[str, Any]]) -> Optional[trace_numbers.Span]:
    """From the begin of the first step to the end of the last step, or of the last kernel if that is later."""
    steps = [event for event in events if event.get("ph") == "X" and str(event.get("name", "")).startswith(_STEP)]
    if not steps:
        return None
    begin = min(event["ts"] for event in steps)
    kernels = [event for event in events if event.get("cat") == "kernel" and event["ts"] >= begin]
    return begin, max(event["ts"] + event["dur"] for event in steps + kernels)
