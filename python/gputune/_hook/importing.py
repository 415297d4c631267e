"""Runs functions after the import of modules."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Optional

Function = Callable[[ModuleType], None]


def after(name: str, function: Function) -> None:
    """Calls `function` with a module at the end of its import, or now if it is loaded."""
    module = sys.modules.get(name)
    if module is not None:
        function(module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)  # type: ignore[arg-type]
    _finder.awaited.setdefault(name, []).append(function)


class _Finder:
    """Finds modules through the other finders, and makes their loaders call the waiting functions after the import.

    Changes only the loader object, not its class: `importlib.util.find_spec("torch").loader` keeps its usual class.
    """

    def __init__(self) -> None:
        self.awaited: dict[str, list[Function]] = {}

    def find_spec(self, name: str, path: Any = None, target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        if name not in self.awaited:
            return None
        for finder in sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                self._extend(name, spec)
                return spec
        return None

    def _extend(self, name: str, spec: ModuleSpec) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # type: ignore[union-attr]
            execute(module)
            waiting = self.awaited.pop(name, [])
            if not self.awaited and self in sys.meta_path:
                sys.meta_path.remove(self)  # type: ignore[arg-type]
            for function in waiting:
                function(module)

        try:
            loader.exec_module = exec_module  # type: ignore[union-attr,method-assign]
        except AttributeError:  # a loader whose attributes cannot be set
            pass


_finder = _Finder()
