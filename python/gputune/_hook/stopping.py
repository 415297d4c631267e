"""Ends the run with exit code 0 once gputune orders it."""

from __future__ import annotations

import atexit
import math
import os
import sys
from typing import Any, Callable, Optional

from gputune._client import Reporter, end_now, rank_and_ranks
from gputune._hook.writes import WRITES

#: In a distributed job the last step is so many steps plus seconds after the order reaches rank 0. This assumes
#: that ranks are less than two steps apart, and that the order reaches all ranks within these seconds.
_STEPS_TO_AGREE = 2
_AGREE_SECONDS = 0.05
#: Least seconds between two checks: a check is a system call, which would slow short steps down.
_LOOK_SECONDS = 0.02
_STORE_KEY = "gputune/last-step"
#: Modes in which the script's writes are discarded after the probe, so its clean-up can be skipped.
_THROWN_AWAY = ("scratch", "guard")


class Stopping:
    """Obeys the order to stop. All ranks of a job leave after the same step, as a missing rank blocks the others."""

    def __init__(self) -> None:
        self.is_ordered = False
        self.flush: Callable[[], None] = lambda: None
        self.between: Callable[[], None] = lambda: None
        """Obeys further orders between two steps; may wait."""
        self.is_leaving = False
        self._looked_at = 0.0
        self._begin: Optional[tuple[int, float]] = None
        self._ranks = (0, 1)
        self._last_step: Optional[int] = None
        atexit.register(self._skip_destructors)  # early registration: it runs after most of the script's handlers

    def between_steps(self, now: float) -> None:
        """Checks for the order between two steps, rarely. Ranks of a job leave only at the end of a step."""
        if now - self._looked_at < 5 * _LOOK_SECONDS:
            return
        if not self.is_ordered:
            self._look(now)
        if self.is_ordered and rank_and_ranks()[1] == 1:
            self.leave()

    def after_step(self, step: int, now: float) -> None:
        """Checks for the order at the end of a step."""
        if self._begin is None:
            self._begin = (step, now)
            self._ranks = rank_and_ranks()
        rank, ranks = self._ranks
        if ranks > 1:
            self._looked_at = -math.inf  # check at each step, so that no rank misses the end
        if not self.is_ordered and now - self._looked_at >= _LOOK_SECONDS:
            self.between()
            self._look(now)
        if not self.is_ordered:
            return
        if ranks == 1 or step >= self._agreed_step(rank, step, now):
            self.leave()

    def _look(self, now: float) -> None:
        self._looked_at = now
        reporter = Reporter.current()
        self.is_ordered = reporter is not None and reporter.is_stopped()

    def leave(self) -> None:
        """Ends the run."""
        reporter = Reporter.current()
        if self.is_leaving or reporter is None:  # the script caught the first SystemExit
            raise SystemExit(0)
        if self._begin is None:
            self._ranks = rank_and_ranks()
        self.is_leaving = self.is_ordered = True  # errors from now on are not the script's
        self.flush()
        if self._ranks[1] == 1 and os.environ.get(WRITES) in _THROWN_AWAY:
            reporter.end_at_once()
        reporter.end_run()

    def _skip_destructors(self) -> None:
        """Ends a rank that gputune stopped before its process group is torn down.

        A stopped script never calls `destroy_process_group`. Threads of the group that outlive Python abort the
        process (seen with gloo: "terminate called without an active exception").
        """
        if not self.is_leaving or self._ranks[1] == 1:
            return
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util._exit_function()  # the workers of the loaders
        end_now()

    def _agreed_step(self, rank: int, step: int, now: float) -> int:
        """The last step: rank 0 writes it to the store of the job, and the other ranks read it."""
        if self._last_step is not None:
            return self._last_step
        try:
            store: Any = sys.modules["torch.distributed"].distributed_c10d._get_default_store()
            if rank == 0:
                first, began = self._begin or (step, now)
                seconds = (now - began) / max(step - first, 1)
                self._last_step = step + _STEPS_TO_AGREE + math.ceil(_AGREE_SECONDS / max(seconds, 1e-4))
                store.add(_STORE_KEY, self._last_step)
            else:  # unlike `get` this does not wait, and unlike `check` each kind of store has it
                self._last_step = store.add(_STORE_KEY, 0) or None
        except Exception:  # no such store in this version, or another kind of job
            self._last_step = step
        return step + 1 if self._last_step is None else self._last_step
