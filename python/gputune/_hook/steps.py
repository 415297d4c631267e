"""Counts steps, and reports each step with its samples, phases and loss."""

from __future__ import annotations

import math
import time
import weakref
from typing import Any, Callable, Optional

import torch
from torch import nn

from gputune import _client
from gputune._client import rank_and_ranks
from gputune._hook.errors import lacks_memory
from gputune._hook.facts import Facts
from gputune._hook.graphs import CapturedStep, Graphs
from gputune._hook.loader import Loaders
from gputune._hook.losses import FIRST_LOSSES, Losses, mean
from gputune._hook.marks import WARM_UP_STEPS, Marks
from gputune._hook.memory import Memory
from gputune._hook.recovery import Recovery
from gputune._hook.samples import Samples
from gputune._hook.sampling import Sampling
from gputune._hook.session import Session
from gputune._hook.step_queue import Step, StepQueue
from gputune._hook.step_times import StepTimes
from gputune._hook.stopping import Stopping
from gputune._hook.timeline import Phases

#: Name of the phase in which ranks communicate.
COMMUNICATION = "communication"

#: Least seconds between two window edges. At an edge the hook reports memory and facts, and requests a loss.
_WINDOW_SECONDS = 0.5
#: Least seconds between the first reports of memory, and the number of these reports. Even a brief probe must show
#: whether memory grows.
_EARLY_SECONDS = 0.15
_EARLY_REPORTS = 20
#: Number of out-of-memory errors before the first step after which the probe fails. The script catches the errors and
#: skips the batches, so it may never make a step.
_MOST_LACKS = 16
#: Number of losses before the first step after which the probe fails. No known script accumulates so many losses.
_MOST_LOSSES = 1024
_NO_STEP = (
    f"gradients were computed {_MOST_LOSSES} times, but no optimizer of torch.optim made a step, and no module's "
    "gradients were zeroed; report the steps with gputune.step(), or have gputune read the rate that the script prints "
    "(throughput = { pattern = ... })"
)


class Steps:
    """Counts the steps of one optimizer: the first that steps. If it is freed, the next optimizer that steps counts."""

    def __init__(
        self,
        session: Session,
        phases: Phases,
        loaders: Loaders,
        marks: Marks,
        memory: Memory,
        stopping: Stopping,
        facts: Facts,
    ) -> None:
        self.number = 0
        self.checks: list[Callable[[], None]] = []
        """Called at the end of the first step, before the check of the settings that took effect."""
        self.reasons: dict[str, str] = {}
        self._session = session
        self._phases = phases
        self._loaders = loaders
        self._marks = marks
        self._memory = memory
        self._stopping = stopping
        self._facts = facts
        self._clock_optimizer: Optional[weakref.ReferenceType[Any]] = None
        self._pending = StepQueue()
        self._losses = Losses()
        self._sampling = Sampling()
        self.losses_per_step: Optional[int] = None
        """How often gradients were computed for the last step; `None` if no loss was seen."""
        self._forwards = 0
        self._recovery = Recovery()
        self.flops: Optional[int] = None
        """Floating-point operations of a step of all ranks; `None` if they were not counted."""
        self.samples = Samples()
        self.graphs = Graphs(self.add_loss, self._end_replayed)
        self.edges: list[Callable[[bool], None]] = []
        """Called at window edges, and with `True` at the end."""
        self.endings: list[Callable[[bool], None]] = []
        """Called at the end of each step, with `True` if it had a mark."""
        self.beginnings: list[Callable[[], None]] = []
        """Called before the first step with other settings."""
        self.in_backward: Callable[[], Optional[float]] = lambda: None
        """Returns the seconds per step that backward waits for other ranks; `None` if they are unknown."""
        self.share_of_wait: Callable[[], float] = lambda: 0.0
        """Returns the share of waiting for data in the time outside of phases; 0 if a DataLoader measures the wait."""
        self._warm_up_ends = WARM_UP_STEPS  # the last step of warm-up
        self._is_told = False  # the final report was sent
        self._waited = 0.0  # seconds per step that backward waits for other ranks
        self._computed = (0, 0.0)  # steps, and their seconds without data wait and communication
        self._last_time: Optional[float] = None
        self._edge = -math.inf
        self._memory_reports = (0, -math.inf)  # number since the settings changed, and time of the last
        self._world = 1
        stopping.flush = self.flush

    def add_forward(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Counts a call of a training module."""
        self._forwards += 1
        self.samples.add_input(module, args, kwargs)

    def note_failure(self, error: Exception) -> None:
        """Counts out-of-memory errors before the first step: a script that catches them may skip every batch.

        At any step: writes a snapshot of the memory, and prepares the report of a smaller batch size.
        """
        if not lacks_memory(error, self._memory):
            return
        self._memory.snapshot.write()
        of_input = self.samples.drop_last()
        self._recovery.fail(self._loaders.pulled_size if self._loaders.has_pulled else of_input)
        if self.number > 0:
            return
        self._memory.lacks += 1
        if self._memory.lacks == _MOST_LACKS:
            message = f"{type(error).__name__}: {error} (the script caught this {_MOST_LACKS} times, and made no step)"
            self._session.send("error", kind="out_of_memory", message=message)

    def add_loss(self, loss: torch.Tensor) -> None:
        """Records a loss before backward. On a device it is read later."""
        if self.graphs.takes_loss(loss):
            return
        self._losses.add(loss)
        if self.number == 0 and self._losses.count == _MOST_LOSSES:
            self._session.send("error", kind="failed", message=_NO_STEP)

    @property
    def has_loss(self) -> bool:
        """True if gradients of a loss were computed since the last step."""
        return self._losses.count > 0

    def drop_losses(self) -> None:
        """Drops losses and samples so far, as they belong to no step."""
        self._losses.drop()
        self._forwards = 0
        self.samples.drop()

    def is_clock(self, optimizer: Any) -> bool:
        """True if steps of this optimizer count. The first optimizer that is passed counts until it is freed."""
        known = self._clock_optimizer() if self._clock_optimizer is not None else None
        if known is None:
            self._clock_optimizer = weakref.ref(optimizer)
            return True
        return known is optimizer

    @property
    def optimizer(self) -> Any:
        """The optimizer whose steps count."""
        return self._clock_optimizer() if self._clock_optimizer is not None else None

    def mark(self, name: str) -> None:
        """Marks the next step."""
        self._marks.note(name)

    def compute_seconds(self) -> Optional[float]:
        """Mean seconds of a step without waits for data and for other ranks."""
        steps, seconds = self._computed
        return seconds / steps if steps else None

    def end_step(self, optimizer: Any, trains: bool = True) -> None:
        """Counts and reports a step after an optimizer has stepped. Without `trains` the step counts no samples."""
        if not self.is_clock(optimizer) or _client.Reporter.current() is None:
            return
        if self.graphs.takes_step(CapturedStep(optimizer, self._forwards, self.samples.inputs)):
            self.drop_losses()
            return
        if not self._session.is_ours:  # a forked child that trains
            self.number = 0
            self._pending.clear()
        self.number += 1
        if self.number == 1:
            self._phases.settle()
        self._phases.restart()
        clock = self._phases.clock
        is_timed, is_next_timed = self._mark_end()
        samples, waits = self._loaders.step(self._forwards, self._losses.count)
        samples = self.samples.of_step(samples, self._loaders.counter, self._forwards)
        if samples is not None and not trains:
            samples = 0
        self._recovery.end_step(self._facts, self._loaders.batch_size, samples)
        if self.number == 1:
            self._memory.lacks = 0
            self._begin()
        samples = None if samples is None else samples * self._world
        _client.handed_out = None if samples is None else (_client.handed_out or 0.0) + samples
        self.losses_per_step = self._losses.count or None
        marks = self._marks.take(self.number)
        self._pending.add(
            Step(
                self.number,
                clock,
                self._phases.last_end,
                self._phases.ended or 0.0,
                samples,
                waits,
                self._phases.take(),
                self._phases.take_host_phases(),
                marks,
                self._losses.take(self.number),
                is_timed,
                *(clock.take_costs() if clock.is_of_device else (0.0, 0.0)),
            )
        )
        self._forwards = 0
        clock.is_sparse = not is_next_timed and self.number > WARM_UP_STEPS
        now = time.perf_counter()
        is_edge = now - self._edge >= _WINDOW_SECONDS
        if is_edge:
            self._edge = now
            self._losses.want()
        self._report_memory(now, is_edge)
        if self._phases.last_end is not None or is_edge:
            self._report()
        if self._is_warm_up_over() and not clock.is_capturing():
            self._end_warm_up()
        if is_edge:
            self._at_edge(False)
        if self.number == 1:
            _client.at_exit(self.flush, 0)  # after the connection exists, so that this runs before its `bye`
        for ending in self.endings:
            ending(bool(marks))
        self._stopping.after_step(self.number, now)

    def _mark_end(self) -> tuple[bool, bool]:
        """Records the end of a step by the clock, if due. Returns if this step was timed, and if the next step is."""
        clock, self._phases.ended = self._phases.clock, time.perf_counter()
        is_timed, is_next_timed, is_marked = not clock.is_sparse, True, True
        if clock.is_of_device:
            is_marked, is_next_timed = self._sampling.choose(self._phases.ended, is_timed or self._is_warm_up_over())
        self._phases.last_end = clock.mark_end() if is_marked else None
        return is_timed, is_next_timed

    def _report_memory(self, now: float, is_edge: bool) -> None:
        reports, last = self._memory_reports
        if is_edge or (reports < _EARLY_REPORTS and now - last >= _EARLY_SECONDS):
            self._memory_reports = reports + 1, now
            self._memory.report()

    def _is_warm_up_over(self) -> bool:
        """True if warm-up is over, and its peaks of memory are not reset yet."""
        return self.number >= self._warm_up_ends and self._memory.is_in_warm_up

    def _end_warm_up(self) -> None:
        """Reports and resets the peaks of memory after warm-up. Marks the next step, which must allocate again."""
        self._memory.empty_cache()
        self._report()
        self._memory.end_warm_up()
        self._marks.note("memory")

    def _end_replayed(self, step: CapturedStep) -> None:
        self._forwards, self.samples.inputs = step.forwards, step.samples
        self.end_step(step.optimizer)

    def _begin(self) -> None:
        """Runs the checks of the first step, which shows the process, loader and optimizer that train."""
        reporter = _client.Reporter.hooked()
        if reporter is not None:
            reporter.claim()
        self._session.own()
        self._world = rank_and_ranks()[1]
        self._loaders.end_first_step()
        for check in self.checks:
            check()
        self._session.check(self.reasons)

    def flush(self) -> None:
        """Reports the remaining steps, once; waits for the device to finish them, unless gputune ended the run."""
        if self._is_told:  # the script's end, after gputune has ended the run
            self._session.flush()
            return
        try:
            self._report_rest(not self._stopping.is_leaving)
        except RuntimeError:  # the device has failed; the script gets the error itself
            self._pending.clear()
        if self.number > 0:
            self._is_told = True
            self._at_edge(True)
        else:
            self._session.flush()

    def settle(self) -> None:
        """Waits for the device between two steps, and reports all steps so far."""
        self._report_rest(True)
        self._at_edge(True)

    def _report_rest(self, waits: bool) -> None:
        """Reports the finished steps and the memory; with `waits`, first waits for the device to finish all steps."""
        if waits:
            self._pending.wait()
        self._report()
        if waits and not self._phases.clock.is_capturing():
            for step in self._pending.rest():
                self._send(step)
        self._memory.report()

    def go_on(self) -> None:
        """Restarts the clock after a pause between two steps, which belongs to neither step."""
        self._phases.restart()
        self._phases.take()
        self._last_time = None
        self._edge = -math.inf

    def begin_anew(self) -> None:
        """Resets the measurements before the first step with other settings."""
        self._computed = (0, 0.0)
        self._memory_reports = (0, -math.inf)
        self._warm_up_ends = self.number + 1  # warm-up is one step: after it, the old batch's blocks are free for reuse
        self._losses.want()
        self._memory.begin_anew()
        for begin in self.beginnings:
            begin()

    def _at_edge(self, is_last: bool) -> None:
        self._waited = self.in_backward() or 0.0
        for edge in self.edges:
            edge(is_last)
        self._session.flush()

    def _report(self) -> None:
        """Reports the finished steps. Does not wait: the device may be several steps behind the host."""
        for step in self._pending.finished():
            self._send(step)

    def _send(self, step: Step) -> None:
        events: list[tuple[str, dict[str, Any]]] = [("mark", {"name": name}) for name in step.marks]
        began = time.perf_counter()
        times = StepTimes(step.clock, step.end, step.segments)
        wait_seconds = times.data_wait(*step.waits)
        sums = times.phases()
        times.release()
        for name, seconds in step.host_phases:
            sums[name] = sums.get(name, 0.0) + seconds
        read = time.perf_counter()
        step.clock.is_base_of_step = step.end is not None
        if step.end is not None:
            step.time = step.clock.time(step.end)
            if step.number > WARM_UP_STEPS:
                end_cost = step.end_cost + time.perf_counter() - read
                self._sampling.pay(end_cost, step.cost + read - began if step.is_timed else 0.0)
        if _client.user_steps:  # the script reports its steps itself
            return
        wait_seconds += self._other_wait(step, wait_seconds + sum(sums.values()))
        if wait_seconds > 0:
            events.append(("phase", {"name": "data_wait", "seconds": wait_seconds}))
        self._take_from_backward(sums)
        for name, seconds in sums.items():
            events.append(("phase", {"name": name, "seconds": seconds}))
        fields: dict[str, Any] = {"time": step.time}
        if not step.is_timed:
            fields["timed"] = False
        self._add_compute(step, fields["time"], wait_seconds + sums.get(COMMUNICATION, 0.0))
        if step.samples is not None:
            fields["samples"] = step.samples
        if self.flops is not None:
            fields["flops"] = self.flops
        loss = mean(step.losses, step.clock.number)
        if loss is not None:
            fields["loss"] = loss
        events.append(("step", fields))
        self._session.send_soon(events, time.perf_counter())

    def _other_wait(self, step: Step, seconds: float) -> float:
        """Seconds of a step that wait for a loader without a measured wait. `seconds` is the time of its phases."""
        if self._last_time is None or not step.is_timed:
            return 0.0
        return self.share_of_wait() * max(step.time - self._last_time - seconds, 0.0)

    def _take_from_backward(self, sums: dict[str, float]) -> None:
        """Moves DistributedDataParallel's waits within backward to the phase `communication`."""
        waited = min(self._waited, sums.get("backward", 0.0))
        if waited > 0:
            sums["backward"] -= waited
            sums[COMMUNICATION] = sums.get(COMMUNICATION, 0.0) + waited

    def _add_compute(self, step: Step, ended: float, waited: float) -> None:
        last, self._last_time = self._last_time, ended
        if last is not None and step.is_timed and not step.marks and step.number > FIRST_LOSSES // 4:
            steps, seconds = self._computed
            self._computed = (steps + 1, seconds + max(ended - last - waited, 0.0))
