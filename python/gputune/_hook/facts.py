"""Reports facts: values such as the number of loader workers, in addition to the steps."""

from __future__ import annotations

import math
from typing import Any

from gputune._hook.session import Session


class Facts:
    """Sends facts that have changed. Each name is in the table of `docs/design/facts.md`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._said: dict[str, Any] = {}

    def say(self, name: str, value: Any) -> None:
        """Reports a fact if its value is known (not `None`, NaN or infinite) and has changed."""
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return
        if name in self._said and self._said[name] == value:
            return
        self._said[name] = value
        self._session.send_soon([("fact", {"name": name, "value": value})], -math.inf)

    def known(self, name: str) -> Any:
        """The value that was reported last; `None` if the fact was never reported."""
        return self._said.get(name)

    def forget(self) -> None:
        """Reports all facts again from now on, as settings have changed."""
        self._said.clear()
