"""A live session: one process measures several configs, and its settings change between two steps.

gputune holds the process between the steps, changes its settings, and lets it go on. The process refuses settings that
it cannot change; gputune then measures that config in a new process.
"""

from __future__ import annotations

from typing import Any

from gputune import _client
from gputune._client import Reporter
from gputune._hook import model_facts
from gputune._hook.loader_settings import ACCUMULATION, PREFIX
from gputune._hook.parts import Hook
from gputune._hook.session import CannotChange

#: Settings that do not affect a compiled model or a captured graph.
_BESIDE_THE_MODEL = {
    PREFIX + name
    for name in (
        "num_workers", "pin_memory", "prefetch_factor", "persistent_workers", "in_order", "multiprocessing_context"
    )
}  # fmt: skip


class Live:
    """Obeys `hold`, `configure` and `go`."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def install(self) -> None:
        Reporter.version = 2
        self._hook.stopping.between = self._between_steps

    def _between_steps(self) -> None:
        reporter = Reporter.current()
        order = None if reporter is None else reporter.next_order(wait=False)
        if reporter is None or order is None:
            return
        is_held = False
        while order is not None:
            name = order["order"]
            if name == "hold":
                is_held = True
                self._hook.steps.settle()
                self._hook.session.send("held")
            elif name == "configure":
                self._configure(reporter, order)
            elif name == "go":
                is_held = False
            order = reporter.next_order(wait=is_held)
        self._hook.steps.go_on()

    def _configure(self, reporter: Reporter, order: dict[str, Any]) -> None:
        session = self._hook.session
        try:
            self._change(session.change(order["apply"]))
        except Exception as error:  # a refused change must not end the script
            session.send("configured", segment=order["segment"], refused=_reason(error))
            return
        reporter.probe["config"] = order["config"]
        self._hook.steps.begin_anew()
        session.send("configured", segment=order["segment"])

    def _change(self, targets: set[str]) -> None:
        hook = self._hook
        if _client.user_steps and targets & {PREFIX + "batch_size", ACCUMULATION}:
            raise CannotChange("the script says itself how many samples a step has")
        if targets - _BESIDE_THE_MODEL and self._is_model_fixed():
            raise CannotChange("the model is compiled, or its steps are in a CUDA graph")
        for target in sorted(targets):
            if target.startswith(PREFIX):
                continue
            change = hook.changes.get(target)
            if change is None:
                raise CannotChange(f"{target} is set when the script starts")
            change(hook.session.value(target))
        if any(target.startswith(PREFIX) or target == ACCUMULATION for target in targets):
            hook.loaders.renew()

    def _is_model_fixed(self) -> bool:
        return self._hook.steps.graphs.are_captured or model_facts.is_compiled(self._hook.modules.found)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, CannotChange) else f"{type(error).__name__}: {error}"
