"""State that the parts of the hook share: the settings, their outcome, and the connection to gputune."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Optional

from gputune._client import Reporter, rank_and_ranks
from gputune._hook.experiment import Experiment, settings_of


#: Seconds for which `send_soon` collects events before it sends them together.
_FLUSH_SECONDS = 0.05


@dataclass(frozen=True)
class Setting:
    """A parameter of the space and its value in this probe."""

    parameter: str
    value: Any


class CannotChange(Exception):
    """The reason why settings cannot be changed while this process trains."""


class Session:
    """The state of one process in a probe."""

    def __init__(self, probe: dict[str, Any]) -> None:
        self.seed: Optional[int] = probe.get("seed")
        self.settings = _settings(probe["apply"])
        for target, value in settings_of(probe).items():
            if not target.startswith("env."):
                self.settings[target] = Setting(target, value)
        self.experiment = Experiment.of(probe)
        self.is_checked = False
        """True once the first step is over. Each setting must have taken effect by then."""
        self._applied: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._failed: set[str] = set()
        self._is_copy = False  # true in a forked child that has not trained
        os.register_at_fork(after_in_child=self._note_fork)
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._flushed_at = 0.0

    def value(self, target: str, default: Any = None) -> Any:
        """The value to apply, or `default` if the probe does not set it."""
        setting = self.settings.get(target)
        return default if setting is None else setting.value

    def send(self, event: str, **fields: Any) -> None:
        """Sends the waiting events and this event at once."""
        self._waiting.append((event, fields))
        self.flush()

    def send_soon(self, events: list[tuple[str, dict[str, Any]]], now: float) -> None:
        """Queues events and sends them in groups: each write wakes gputune, which would slow short steps down."""
        self._waiting += events
        if now - self._flushed_at >= _FLUSH_SECONDS:
            self._flushed_at = now
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        reporter = Reporter.current()
        if reporter is not None and waiting:
            reporter.send_all(waiting)

    @property
    def is_ours(self) -> bool:
        """True in the hooked process, and in a child that trains."""
        return not self._is_copy and Reporter.hooked() is not None

    def own(self) -> None:
        """Marks this process as training: from now on its errors count."""
        self._is_copy = False

    def _note_fork(self) -> None:
        self._is_copy = True
        self._waiting = []

    def apply(self, target: str) -> None:
        """Notes that the target took effect."""
        if target in self.settings and target not in self._applied | self._failed:
            self._applied.add(target)
            if self.is_checked:
                self._say_applied(target)

    def change(self, apply: dict[str, dict[str, Any]]) -> set[str]:
        """Replaces the settings. Returns the targets whose value changes or is no longer set."""
        before, self.settings = self.settings, _settings(apply)
        changed = {target for target in {*before, *self.settings} if before.get(target) != self.settings.get(target)}
        kept = self._applied - changed
        self._applied.clear()
        self._failed.clear()
        self._reasons.clear()
        for target in kept:
            self.apply(target)
        return changed

    def explain(self, target: str, reason: str) -> None:
        """Keeps the reason why a target has no effect yet. `check` reports it if the target never takes effect."""
        self._reasons[target] = reason

    def reject(self, target: str, reason: str) -> None:
        """Reports an error at once: the setting cannot be used in this script or on this device."""
        if target in self._failed:
            return
        self._failed.add(target)
        self._applied.discard(target)
        setting = self.settings[target]
        message = f"{setting.parameter} = {_text(setting.value)} ({target}): {reason}"
        self.send("error", kind="rejected", message=message)

    def check(self, reasons: dict[str, str], prefix: str = "") -> None:
        """After the first step: reports the targets that took effect, and the targets that found nothing to act on.

        Checks only targets that begin with `prefix`.
        """
        self.is_checked = True
        if rank_and_ranks()[0] != 0:
            return
        idle: dict[str, list[str]] = {}  # parameters without effect, by the reason
        for target, setting in self.settings.items():
            if not target.startswith(prefix):
                continue
            if target in self._applied:
                self._say_applied(target)
            elif target not in self._failed:
                reason = self._reasons.get(target) or reasons.get(target, "")
                idle.setdefault(reason, []).append(f"{setting.parameter} ({target})")
        if idle:
            parts = (f"{', '.join(names)} found nothing to act on: {reason}" for reason, names in idle.items())
            parameters = [name.split(" ", 1)[0] for names in idle.values() for name in names]
            self.send("error", kind="not_applied", message="; ".join(parts), parameters=parameters)

    def _say_applied(self, target: str) -> None:
        if rank_and_ranks()[0] == 0:
            self.send("applied", target=target)


class UnmeasuredSession(Session):
    """Prints errors, such as settings without effect, on rank 0. Drops all other events."""

    def send(self, event: str, **fields: Any) -> None:
        if event == "error" and rank_and_ranks()[0] == 0:
            print(f"gputune: the best config is not applied in full: {fields['message']}", file=sys.stderr, flush=True)

    def send_soon(self, events: list[tuple[str, dict[str, Any]]], now: float) -> None:
        pass


def _settings(apply: dict[str, dict[str, Any]]) -> dict[str, Setting]:
    return {target: Setting(str(setting["parameter"]), setting["value"]) for target, setting in apply.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
